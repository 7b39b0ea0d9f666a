"""Every alert on made-up series, by promtool: it fires for a broken table after its delay, for no other, and clears."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.metrics import BY_NAME, Kind
from prism_assets_tests.metrics.test_files import RULES, rules

EXPORTER = {"instance": "exporter:8091", "job": "prism-exporter"}
WORKER = {"instance": "worker:8090", "job": "prism-worker"}
EVENTS, OTHER = "log.events", "log.other"


@dataclass(frozen=True)
class Series:
    """Values of a metric of the list, one a minute, in promtool's notation."""

    name: str
    values: str
    labels: tuple[str, ...] = ()
    target: Mapping[str, str] = field(default_factory=lambda: EXPORTER)

    def written(self) -> dict[str, str]:
        """Returns the series with the labels of its metric and of its target."""
        metric = BY_NAME[self.name]
        assert metric.kind is not Kind.HISTOGRAM
        labels = {**dict(zip(metric.labels, self.labels, strict=True)), **self.target}
        return {"series": f"{self.name}{{{_inside(labels)}}}", "values": self.values}


@dataclass(frozen=True)
class Case:
    """An alert: not at `before`, firing at `fires` with these labels and this summary, over at `clear`. In minutes."""

    alert: str
    series: tuple[Series, ...]
    before: int
    fires: int
    clear: int
    labels: Mapping[str, str]
    summary: str


def _inside(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def up_for(minutes: int, value: float, *, usual: float = 0) -> str:
    """Values that are usual, then so for some minutes, then usual again."""
    return f"{usual}x9 {value}x{minutes - 1} {usual}x20"


def gauge(alert: str, name: str, value: float, minutes: int, summary: str) -> Case:
    """An alert on a gauge of a table, with a neighbour that is well."""
    series = (Series(name, up_for(minutes + 5, value), (EVENTS,)), Series(name, "0x60", (OTHER,)))
    labels = {"table": EVENTS, **EXPORTER}
    before, fires, clear = 9 + minutes, 11 + minutes, 20 + minutes
    return Case(alert, series, before, fires, clear, labels, f"{EVENTS}: {summary}")


CASES = (
    Case(
        "PrismCheckFailed",
        (
            Series("prism_check_failed", up_for(6, 1), (EVENTS, "unread_objects", "warning")),
            Series("prism_check_failed", "0x60", (EVENTS, "ledger", "error")),
            Series("prism_check_failed", "0x60", (OTHER, "unread_objects", "warning")),
        ),
        *(10, 12, 20),
        {"table": EVENTS, "check": "unread_objects", **EXPORTER},
        f"{EVENTS}: the check unread_objects fails",
    ),
    Case(
        "PrismWaitsForPerson",
        # A finding has no series before it is found, and none after it is over.
        (
            Series("prism_findings", "_x10 2x9 stale", (EVENTS, "unread_objects", "person")),
            Series("prism_findings", "5x60", (OTHER, "late_rows", "run")),
        ),
        *(14, 16, 25),
        {"table": EVENTS, "kind": "unread_objects", "acts": "person", **EXPORTER},
        f"{EVENTS}: unread_objects waits for a person",
    ),
    Case(
        "PrismWaitsForPerson",
        (Series("prism_findings", "_x10 1x9 stale", ("", "leftovers", "person")),),
        *(14, 16, 25),
        {"kind": "leftovers", "acts": "person", **EXPORTER},
        "all tables: leftovers waits for a person",
    ),
    Case(
        "PrismTableStale",
        (
            # The time of promtool begins at 0: rows come until minute 5, and again from minute 30 on.
            Series("prism_table_last_rows_timestamp_seconds", "0+60x5 300x23 1800+60x40", (EVENTS,)),
            Series("prism_table_freshness_limit_seconds", "600x60", (EVENTS,)),
            Series("prism_table_last_rows_timestamp_seconds", "0+60x60", (OTHER,)),
            Series("prism_table_freshness_limit_seconds", "600x60", (OTHER,)),
            Series("prism_table_last_rows_timestamp_seconds", "0x60", ("log.without_limit",)),
        ),
        *(15, 18, 32),
        {"table": EVENTS},
        f"{EVENTS}: no new rows for 13m 0s",
    ),
    gauge("PrismTableLags", "prism_table_lag_seconds", 4_000, 5, "an object waits for 1h 6m 40s"),
    gauge("PrismObjectsGivenUp", "prism_table_given_up_objects", 3, 1, "3 objects are given up"),
    Case(
        "PrismQuarantineRate",
        (
            Series("prism_table_lines_total", "0+1000x90", (EVENTS,)),
            Series("prism_table_quarantined_lines_total", "0x9 0+100x30 3000x50", (EVENTS,)),
            Series("prism_table_lines_total", "0+1000x90", (OTHER,)),
            Series("prism_table_quarantined_lines_total", "0+40x90", (OTHER,)),
        ),
        *(10, 30, 70),
        {"table": EVENTS, **EXPORTER},
        f"{EVENTS}: over 5 % of its lines are quarantined",
    ),
    gauge("PrismTopicStopped", "prism_table_stopped_partitions", 2, 0, "2 partitions of topics are stopped"),
    gauge("PrismTopicLags", "prism_table_topic_lag_seconds", 1_200, 5, "a message waits for 20m 0s"),
    gauge("PrismMergesWait", "prism_table_merge_due_seconds", 9_000, 15, "a merge is due for 2h 30m 0s"),
    Case(
        "PrismWorkerDead",
        (
            Series("prism_workers", up_for(10, 0, usual=2), ("alive",)),
            Series("prism_workers", up_for(10, 2), ("silent",)),
        ),
        *(10, 12, 25),
        {"state": "silent", **EXPORTER},
        "no live worker is alive, and 2 went silent; sensors of Dagster convert instead",
    ),
    Case(
        "PrismWorkerHangs",
        (
            Series("prism_worker_silent_seconds", up_for(6, 180), target=WORKER),
            Series("prism_worker_silent_seconds", "1x60", target={**WORKER, "instance": "other:8090"}),
        ),
        *(10, 12, 20),
        WORKER,
        "worker:8090: no turn of the worker succeeds for 3m 0s",
    ),
    Case(
        "PrismLeasesLost",
        (
            Series("prism_step_runs_total", "0x9 0+2x5 10x60", ("stream", "lease_lost")),
            Series("prism_step_runs_total", "0+50x90", ("stream", "done")),
        ),
        *(9, 20, 60),
        {"step": "stream", "outcome": "lease_lost", **EXPORTER},
        "10 batches lost their lease in half an hour: workers die or hang",
    ),
    Case(
        "PrismExporterBlind",
        (
            Series("prism_exporter_up", up_for(10, 0, usual=1), ("tables",)),
            Series("prism_exporter_up", "1x60", ("attention",)),
        ),
        *(14, 16, 25),
        {"look": "tables", **EXPORTER},
        "the exporter cannot read PostgreSQL (tables): the other alerts know nothing",
    ),
)
NOT_OF_THE_LIST = {"PrismProcessDown"}
"""Its series is Prometheus' own."""


def test_every_alert_has_a_case() -> None:
    assert {case.alert for case in CASES} | NOT_OF_THE_LIST == {rule["alert"] for rule in rules()}


def unit_test(case: Case, series: list[dict[str, str]]) -> dict[str, Any]:
    """Returns a case in promtool's words. An alert that fires has these labels and annotations, and no others."""
    (rule,) = (rule for rule in rules() if rule["alert"] == case.alert)
    severity = str(rule["labels"]["severity"]).replace("{{ $labels.severity }}", "warning")
    firing = {
        "exp_labels": {"severity": severity, **case.labels},
        "exp_annotations": {**rule["annotations"], "summary": case.summary},
    }
    expected: Mapping[int, list[Any]] = {case.before: [], case.fires: [firing], case.clear: []}
    asked = [
        {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": alerts}
        for minute, alerts in expected.items()
    ]
    return {"name": f"{case.alert} {case.summary}", "interval": "1m", "input_series": series, "alert_rule_test": asked}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Debian's package prometheus")
def test_every_alert_fires_after_its_delay_for_its_table_alone_and_clears(tmp_path: Path) -> None:
    tests = [unit_test(case, [series.written() for series in case.series]) for case in CASES]
    down = Case("PrismProcessDown", (), 11, 13, 25, WORKER, "prism-worker at worker:8090 does not answer")
    others = ({"instance": "node:9100", "job": "node"}, EXPORTER)
    tests.append(
        unit_test(
            down,
            [
                {"series": f"up{{{_inside(WORKER)}}}", "values": up_for(10, 0, usual=1)},
                {"series": f"up{{{_inside(others[0])}}}", "values": "0x60"},
                {"series": f"up{{{_inside(others[1])}}}", "values": "1x60"},
            ],
        )
    )
    file = tmp_path / "tests.yaml"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    found = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr
