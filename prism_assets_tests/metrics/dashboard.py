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


def _rate(name: str, *by: str, labels: str = _TABLES) -> str:
    return f"sum by ({', '.join(by)}) (rate({name}{labels}[$__rate_interval]))"


def _latency(share: float) -> str:
    buckets = f"sum by (le) (rate(prism_table_latency_seconds_bucket{_TABLES}[$__rate_interval]))"
    return f"histogram_quantile({share}, {buckets})"


def _stat(title: str, expression: str, legend: str = "") -> Panel:
    return Panel(title=title, kind="stat", width=6, queries=[(expression, legend)])


def _list(title: str, expression: str, legend: str) -> Panel:
    return Panel(title=title, kind="table", width=12, queries=[(expression, legend)])


def _graph(title: str, *queries: tuple[str, str], unit: str = "short") -> Panel:
    return Panel(title=title, unit=unit, queries=queries)


def _largest(title: str, expression: str, unit: str = "short") -> Panel:
    """Returns a graph of the 20 tables with the largest values."""
    return _graph(title, (f"topk(20, {expression})", "{{table}}"), unit=unit)


def _rates(title: str, name: str, *by: str, unit: str = "short") -> Panel:
    """Returns a graph of a counter's rate by labels."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by)
    return _graph(title, (_rate(name, *by, labels=""), legend), unit=unit)


_QUARANTINED = f"{_rate('prism_table_quarantined_lines_total', 'table')} / {_rate('prism_table_lines_total', 'table')}"

ROWS: Sequence[tuple[str, Sequence[Panel]]] = (
    (
        "Is everything well?",
        (
            _stat("Failing checks", "sum(prism_check_failed)"),
            _stat("Findings for a person", 'sum(prism_findings{acts="person"}) or vector(0)'),
            _stat("Live workers", "prism_workers", "{{state}}"),
            _stat("Exporter", "prism_exporter_up", "{{look}}"),
            _list("Which checks fail", f"prism_check_failed{_TABLES} == 1", "{{table}} {{check}}"),
            _list("What waits for a person", 'prism_findings{acts="person"}', "{{table}} {{kind}}"),
        ),
    ),
    (
        "Are rows on time?",
        (
            _largest("Lag: age of the oldest object without rows", f"prism_table_lag_seconds{_TABLES}", unit="s"),
            _largest(
                "Freshness: time since the last rows",
                f"time() - prism_table_last_rows_timestamp_seconds{_TABLES}",
                unit="s",
            ),
            _graph("From arrival to commit", (_latency(0.5), "half"), (_latency(0.99), "99 of 100"), unit="s"),
            _largest("Pending objects", f"prism_table_pending_objects{_TABLES}"),
            _largest("Lag of topics", f"prism_table_topic_lag_seconds{_TABLES}", unit="s"),
            _graph("Share of quarantined lines", (f"{_QUARANTINED} > 0", "{{table}}"), unit="percentunit"),
        ),
    ),
    (
        "How much work?",
        (
            _largest("Rows a second", _rate("prism_table_rows_total", "table")),
            _largest("Bytes of objects a second", _rate("prism_table_object_bytes_total", "table"), unit="Bps"),
            _largest("Bytes written by merges a second", _rate("prism_table_merged_bytes_total", "table"), unit="Bps"),
            _graph(
                "Merges",
                *((f"sum(prism_table_merges_{state}{_TABLES})", state) for state in ("due", "running", "parked")),
            ),
            _rates("Ended batches and merges a second", "prism_step_runs_total", "step", "outcome"),
            _rates("Batches and merges at work, in parallel", "prism_step_seconds_total", "step"),
        ),
    ),
    (
        "Live workers",
        (
            _rates("Rows a second", "prism_worker_rows_total", "instance"),
            _rates(
                "Share of time in the parts of turns",
                "prism_worker_step_seconds_total",
                "instance",
                "step",
                unit="percentunit",
            ),
            _rates("Calls to AWS a second", "prism_requests_total", "service", "outcome"),
            _graph(
                "Failed turns, lost leases, dead children",
                *(
                    (f"sum(increase(prism_worker_{name}_total[$__rate_interval]))", name.replace("_", " "))
                    for name in ("failed_turns", "leases_lost", "lost_batches", "child_deaths")
                ),
            ),
            _graph("Time since the last good turn", ("prism_worker_silent_seconds", "{{instance}}"), unit="s"),
            _rates("Messages of topics a second", "prism_worker_spooled_messages_total", "instance"),
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
