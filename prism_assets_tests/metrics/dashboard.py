"""The dashboard for Grafana: panels as data. `scripts/docs --pages` writes deploy/grafana/prism.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_TABLES = '{table=~"$table"}'
_COLUMNS, _HEIGHT = 24, 8


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One panel. Each expression has its legend."""

    title: str
    queries: Sequence[tuple[str, str]]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    about: str = ""


def _rate(name: str, *by: str, labels: str = _TABLES) -> str:
    return f"sum by ({', '.join(by)}) (rate({name}{labels}[$__rate_interval]))"


def _latency(share: float) -> str:
    buckets = f"sum by (le) (rate(prism_table_latency_seconds_bucket{_TABLES}[$__rate_interval]))"
    return f"histogram_quantile({share}, {buckets})"


ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    (
        "Is everything well?",
        (
            Panel(title="Failing checks", kind="stat", width=6, queries=[("sum(prism_check_failed)", "")]),
            Panel(
                title="Findings for a person",
                kind="stat",
                width=6,
                queries=[('sum(prism_findings{acts="person"}) or vector(0)', "")],
            ),
            Panel(title="Live workers", kind="stat", width=6, queries=[("prism_workers", "{{state}}")]),
            Panel(title="Exporter", kind="stat", width=6, queries=[("prism_exporter_up", "{{look}}")]),
            Panel(
                title="Which checks fail",
                kind="table",
                width=12,
                queries=[(f"prism_check_failed{_TABLES} == 1", "{{table}} {{check}}")],
            ),
            Panel(
                title="What waits for a person",
                kind="table",
                width=12,
                queries=[('prism_findings{acts="person"}', "{{table}} {{kind}}")],
            ),
        ),
    ),
    (
        "Are rows on time?",
        (
            Panel(
                title="Lag: age of the oldest object without rows",
                unit="s",
                queries=[(f"topk(20, prism_table_lag_seconds{_TABLES})", "{{table}}")],
            ),
            Panel(
                title="Freshness: time since the last rows",
                unit="s",
                queries=[(f"topk(20, time() - prism_table_last_rows_timestamp_seconds{_TABLES})", "{{table}}")],
            ),
            Panel(
                title="From arrival to commit",
                unit="s",
                queries=[(_latency(0.5), "half"), (_latency(0.99), "99 of 100")],
            ),
            Panel(title="Pending objects", queries=[(f"topk(20, prism_table_pending_objects{_TABLES})", "{{table}}")]),
            Panel(
                title="Lag of topics",
                unit="s",
                queries=[(f"topk(20, prism_table_topic_lag_seconds{_TABLES})", "{{table}}")],
            ),
            Panel(
                title="Share of quarantined lines",
                unit="percentunit",
                queries=[
                    (
                        f"{_rate('prism_table_quarantined_lines_total', 'table')} / "
                        f"{_rate('prism_table_lines_total', 'table')} > 0",
                        "{{table}}",
                    )
                ],
            ),
        ),
    ),
    (
        "How much work?",
        (
            Panel(
                title="Rows a second",
                queries=[(f"topk(20, {_rate('prism_table_rows_total', 'table')})", "{{table}}")],
            ),
            Panel(
                title="Bytes of objects a second",
                unit="Bps",
                queries=[(f"topk(20, {_rate('prism_table_object_bytes_total', 'table')})", "{{table}}")],
            ),
            Panel(
                title="Bytes written by merges a second",
                unit="Bps",
                queries=[(f"topk(20, {_rate('prism_table_merged_bytes_total', 'table')})", "{{table}}")],
            ),
            Panel(
                title="Merges",
                queries=[
                    (f"sum(prism_table_merges_{state}{_TABLES})", state) for state in ("due", "running", "parked")
                ],
            ),
            Panel(
                title="Ended batches and merges a second",
                queries=[(_rate("prism_step_runs_total", "step", "outcome", labels=""), "{{step}} {{outcome}}")],
            ),
            Panel(
                title="Batches and merges at work, in parallel",
                queries=[(_rate("prism_step_seconds_total", "step", labels=""), "{{step}}")],
            ),
        ),
    ),
    (
        "Live workers",
        (
            Panel(
                title="Rows a second",
                queries=[(_rate("prism_worker_rows_total", "instance", labels=""), "{{instance}}")],
            ),
            Panel(
                title="Share of time in the parts of turns",
                unit="percentunit",
                queries=[
                    (_rate("prism_worker_step_seconds_total", "instance", "step", labels=""), "{{instance}} {{step}}")
                ],
            ),
            Panel(
                title="Calls to AWS a second",
                queries=[(_rate("prism_requests_total", "service", "outcome", labels=""), "{{service}} {{outcome}}")],
            ),
            Panel(
                title="Failed turns, lost leases, dead children",
                queries=[
                    (f"sum(increase(prism_worker_{name}_total[$__rate_interval]))", name.replace("_", " "))
                    for name in ("failed_turns", "leases_lost", "lost_batches", "child_deaths")
                ],
            ),
            Panel(
                title="Time since the last good turn",
                unit="s",
                queries=[("prism_worker_silent_seconds", "{{instance}}")],
            ),
            Panel(
                title="Messages of topics a second",
                queries=[(_rate("prism_worker_spooled_messages_total", "instance", labels=""), "{{instance}}")],
            ),
        ),
    ),
)


def dashboard() -> str:
    """Returns the dashboard as Grafana imports it."""
    panels = [dict(panel, id=number) for number, panel in enumerate(_panels(), 1)]
    document = {
        "title": "prism_assets",
        "uid": "prism-assets",
        "tags": ["prism"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": [_source_variable(), _table_variable()]},
        "panels": panels,
    }
    return json.dumps(document, indent=1) + "\n"


def _source_variable() -> dict[str, Any]:
    return {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _table_variable() -> dict[str, Any]:
    query = "label_values(prism_table_pending_objects, table)"
    return {
        "name": "table",
        "label": "Table",
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${source}"},
        "query": query,
        "definition": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[dict[str, Any]]:
    top = 0
    for title, panels in ROWS:
        yield {"type": "row", "title": title, "collapsed": False, "gridPos": _place(0, top, _COLUMNS, 1)}
        top, left = top + 1, 0
        for panel in panels:
            height = _HEIGHT // 2 if panel.kind == "stat" else _HEIGHT
            if left + panel.width > _COLUMNS:
                left = 0
                top += _HEIGHT
            yield _panel(panel, _place(left, top, panel.width, height))
            left += panel.width
            if panel.kind == "stat" and left == _COLUMNS:
                top, left = top + height, 0
        top += _HEIGHT


def _place(left: int, top: int, width: int, height: int) -> dict[str, int]:
    return {"x": left, "y": top, "w": width, "h": height}


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    is_table = panel.kind == "table"
    source = {"type": "prometheus", "uid": "${source}"}
    targets = [
        {
            "refId": chr(ord("A") + number),
            "datasource": source,
            "expr": expression,
            "legendFormat": legend,
            "instant": panel.kind != "timeseries",
            "range": panel.kind == "timeseries",
            "format": "table" if is_table else "time_series",
        }
        for number, (expression, legend) in enumerate(panel.queries)
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "datasource": source,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
    }
