"""The journal in databases keeps the contract of all journals."""

from __future__ import annotations

import pytest

from kilonova.base.journal import Journal
from kilonova.store.journal import DatabaseJournal
from kilonova.store.session import Database
from tests.contracts.journal_suite import JournalSuite, MakeJournal


class TestApiJournal(JournalSuite):
    @pytest.fixture
    def make_journal(self, api_shared: Database) -> MakeJournal:
        def make() -> Journal:
            return DatabaseJournal(api_shared)

        return make


class TestCellJournal(JournalSuite):
    @pytest.fixture
    def make_journal(self, cell_shared: Database) -> MakeJournal:
        def make() -> Journal:
            return DatabaseJournal(cell_shared)

        return make
