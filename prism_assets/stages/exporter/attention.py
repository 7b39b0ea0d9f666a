"""Findings and failed checks, as metrics. Read once a minute, because their statements take longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime

from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.findings import Acts, Finding
from prism_assets.domain.metrics import Sample
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.stages.checks.run import CHECKS, run_checks
from prism_assets.stages.context import StageContext
from prism_assets.stages.findings.registry import read_findings

ADVICE = "advice"
"""The value of `acts` for findings that a person may end, and need not."""


def count_findings(context: StageContext, names: Collection[str], now: datetime) -> Iterator[Sample]:
    """Yields the number of findings by table, kind and `acts`. Findings of the whole lake have an empty table."""
    found = read_findings(context, None, now=now)
    counts = Counter(
        ((item.table or ""), item.kind, _acts(item)) for item in found if item.table is None or item.table in names
    )
    for labels, count in sorted(counts.items()):
        yield Sample("prism_findings", count, labels)


def _acts(item: Finding) -> str:
    return ADVICE if item.acts is Acts.PERSON and not item.needs_a_person else item.acts.value


def count_failed_checks(
    context: StageContext, tables: Sequence[TableDefinition], limits: Mapping[str, CheckLimits], now: datetime
) -> Iterator[Sample]:
    """Yields the outcomes of each table's checks, except checks of the catalog. A failure is 1."""
    for check in CHECKS.values():
        names = [str(table.name) for table in tables if check.is_of(table)]
        if check.asks_catalog or not names:
            continue
        severity = "error" if check.is_error else "warning"
        for outcome in run_checks(context, [check.name], now=now, names=names, limits=limits):
            yield Sample("prism_check_failed", 0 if outcome.passed else 1, (outcome.table, check.name, severity))
