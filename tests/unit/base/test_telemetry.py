"""Figures of what ran; and that nothing breaks where the library is missing."""

from __future__ import annotations

import pytest

from kilonova.base import telemetry
from tests.flows.sweep import Failing
from tests.unit.base.test_engine import stage


def test_steps_and_ends_of_flows_are_counted() -> None:
    stage(faults=Failing("look", when="before", times=1)).play()
    telemetry.operation_done("show_server", "GET", 200, 0.2)
    telemetry.message_handled("Compute", "perform", "ok", 0.1)
    telemetry.timer_failed("sweep")
    telemetry.watch("kilonova_test_line", "A line.", lambda: 3.0)
    text = telemetry.exposition()[0].decode()
    for line in (
        'kilonova_step_seconds_count{flow="move",result="failed",step="look"}',
        'kilonova_step_seconds_count{flow="move",result="succeeded",step="spawn"}',
        'kilonova_step_seconds_count{flow="move",result="undone",step="claim"}',
        'kilonova_flow_seconds_count{flow="move",status="done"}',
        'kilonova_operation_seconds_count{code="200",method="GET",operation="show_server"}',
        'kilonova_message_seconds_count{contract="Compute",method="perform",result="ok"}',
        'kilonova_timer_failures_total{timer="sweep"}',
        "kilonova_test_line 3.0",
    ):
        assert line in text


def test_without_the_library_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "prometheus", None)
    telemetry.operation_done("x", "GET", 200, 1)
    telemetry.step_done("f", "s", "done", 1)
    telemetry.flow_ended("f", "done", 1)
    telemetry.timer_failed("t")
    telemetry.watch("n", "h", lambda: 1.0)
    assert telemetry.exposition()[0] == b""
