"""The journal in memory keeps the contract of all journals."""

from __future__ import annotations

import pytest

from kilonova.base.journal import Journal, MemoryJournal
from tests.contracts.journal_suite import JournalSuite, MakeJournal


class TestMemoryJournal(JournalSuite):
    @pytest.fixture
    def make_journal(self) -> MakeJournal:
        journal: Journal = MemoryJournal()
        return lambda: journal
