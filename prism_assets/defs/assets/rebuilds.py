"""Rebuilds a day in manual runs and backfills whose configuration asks for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date

from prism_assets.defs.assets.configuration import Rebuilding
from prism_assets.defs.assets.outcome import Facts, RunOrder
from prism_assets.domain.errors import PrismError
from prism_assets.domain.problems import Problem
from prism_assets.stages.context import StageContext
from prism_assets.stages.rebuild.plan import load_days
from prism_assets.stages.rebuild.report import RebuildReport
from prism_assets.stages.rebuild.run import run_rebuild

_EXAMPLES = 20


def rebuild_days(
    context: StageContext, order: RunOrder, ids: Mapping[int, str]
) -> tuple[dict[str, RebuildReport], tuple[Problem, ...]]:
    """Rebuilds the day of each table that has it. Returns reports by table, and problems.

    Tables without the day are skipped, because a backfill also covers days without rows.
    """
    with context.database.begin() as connection:
        names = [name for table, name in ids.items() if load_days(connection, table, order.day, order.day)]
    return _rebuild(context, order, names, order.day)


def rebuild_join_tables(context: StageContext, order: RunOrder) -> tuple[dict[str, RebuildReport], tuple[Problem, ...]]:
    """Rebuilds whole join tables, for any requested day. Returns reports by table, and problems."""
    return _rebuild(context, order, order.tables, None)


def _rebuild(
    context: StageContext, order: RunOrder, names: Collection[str], day: date | None
) -> tuple[dict[str, RebuildReport], tuple[Problem, ...]]:
    """Rebuilds tables one after another. A failed table does not stop the others."""
    reports: dict[str, RebuildReport] = {}
    problems: list[Problem] = []
    without_missing = order.rebuild is Rebuilding.WITHOUT_MISSING
    for name in names:
        try:
            reports[name] = run_rebuild(context, name, day=day, without_missing=without_missing, now=order.started)
        except PrismError as error:
            problems.append(Problem.of(error, name, day))
        else:
            problems += [*reports[name].problems, *reports[name].skipped]
    return reports, tuple(problems)


def record_facts(report: RebuildReport | None) -> Facts:
    """Returns facts of a join table's rebuild for its asset page. Empty without a rebuild."""
    facts: dict[str, object] = {}
    for item in report.records if report else ():
        facts["changes read again"] = item.changes
        facts["records recomputed"] = item.records
        facts["days rewritten"] = [str(day) for day in item.days]
        facts["rows rewritten"] = item.rows_written
        facts["unreadable objects"] = list(item.unread[:_EXAMPLES])
    return facts


def rebuild_facts(report: RebuildReport | None) -> Facts:
    """Returns facts of a rebuild for the asset page. Empty without a rebuild."""
    facts: dict[str, object] = {}
    for day in report.days if report else ():
        facts["definition version"] = day.version
        facts["objects converted again"] = day.totals.objects if day.totals else 0
        if day.totals:
            facts["rows before the rebuild"] = day.totals.rows_before
            facts["rows after the rebuild"] = day.totals.rows_after
            facts["merged objects rewritten"] = day.totals.ranges
            facts["lines quarantined before the rebuild"] = day.totals.quarantined_before
            facts["lines quarantined after the rebuild"] = day.totals.quarantined_after
            facts["lines filtered before the rebuild"] = day.totals.filtered_before
            facts["lines filtered after the rebuild"] = day.totals.filtered_after
            if day.totals.elsewhere_before or day.totals.elsewhere_after:
                facts["lines of other tables before the rebuild"] = day.totals.elsewhere_before
                facts["lines of other tables after the rebuild"] = day.totals.elsewhere_after
        if day.missing:
            facts["missing staging objects"] = len(day.missing)
            facts["examples of missing objects"] = list(day.missing[:_EXAMPLES])
    return facts
