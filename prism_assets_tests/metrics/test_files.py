"""The rules for Prometheus and the dashboard for Grafana, against the list of metrics."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from prism_assets.domain.metrics import BY_NAME, LATENCY_BOUNDS, METRICS, Distribution, Kind, Sample, Source, series_of
from prism_assets.metrics.text import render
from prism_assets_tests.metrics.dashboard import dashboard
from prism_assets_tests.metrics.scraped import values_of

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULES = PROMETHEUS / "prism.rules.yaml"
_SERIES = re.compile(r"\bprism_\w+")
_LABELS = re.compile(r"(prism_\w+)\{([^}]*)\}")
_KNOWN = {name for metric in METRICS for name in series_of(metric)}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def panel_expressions() -> Iterator[str]:
    for panel in json.loads(dashboard())["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))


EXPRESSIONS = [*(rule["expr"] for rule in rules()), *panel_expressions()]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_every_expression_asks_for_metrics_and_labels_that_exist(expression: str) -> None:
    names = set(_SERIES.findall(expression))
    assert names or expression.startswith("up{")
    assert names <= _KNOWN
    for name, inside in _LABELS.findall(expression):
        metric = next(item for item in METRICS if name in series_of(item))
        assert set(re.findall(r"(\w+)\s*(?:=|!)", inside)) <= {*metric.labels, "le", "instance"}, name


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_rates_are_taken_of_counters_alone(expression: str) -> None:
    inside = set(re.findall(r"(?:rate|increase)\((prism_\w+)", expression))
    kinds = {item.kind for item in METRICS if set(series_of(item)) & inside}
    assert kinds <= {Kind.COUNTER, Kind.HISTOGRAM}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_every_alert_has_a_severity_and_leads_to_a_page(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("error", "warning", "{{ $labels.severity }}")
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_names_follow_the_conventions_of_prometheus() -> None:
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert metric.name.endswith("_total") is (metric.kind is Kind.COUNTER), metric.name
        assert not re.search(r"_(ms|minutes|hours|mb|kb|percent)(_total)?$", metric.name), metric.name
        assert metric.help.endswith("."), metric.name
        assert len(metric.labels) <= 3


def test_values_are_written_as_prometheus_reads_them() -> None:
    counts = (1, 0, 2, *(0 for _ in LATENCY_BOUNDS[3:]), 4)
    text = render(
        [
            Sample("prism_findings", 2, ('a "quoted"\\name\n', "publish", "run")),
            Distribution("prism_table_latency_seconds", counts, 12.5, ("log.events",)),
            Sample("prism_worker_rows_total", 12_345_678_901),
        ]
    )
    values = values_of(text)
    assert values["prism_worker_rows_total"] == 12_345_678_901
    assert values['prism_findings{acts="run",kind="publish",table="a "quoted"\\name\n"}'] == 2
    assert values['prism_table_latency_seconds_bucket{le="5.0",table="log.events"}'] == 3
    assert values['prism_table_latency_seconds_bucket{le="+Inf",table="log.events"}'] == 7
    assert values['prism_table_latency_seconds_sum{table="log.events"}'] == 12.5


def test_each_command_has_metrics() -> None:
    assert {metric.source for metric in METRICS} == set(Source)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool comes with Debian's package prometheus")
def test_prometheus_accepts_configuration_and_rules() -> None:
    for what, file in (("rules", RULES), ("config", PROMETHEUS / "prometheus.yaml")):
        found = subprocess.run(["promtool", "check", what, str(file)], capture_output=True, text=True, timeout=60)
        assert found.returncode == 0, found.stdout + found.stderr
