"""Checks of tables, for people. They decide nothing. Each check is one statement for all its tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import date, datetime, timedelta

from prism_assets.domain.days.limits import CheckLimits
from prism_assets.stages.checks import days, iceberg, intake, joins, subjects, topics
from prism_assets.stages.checks.outcomes import Check, CheckOutcome
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext

CHECKS: Mapping[str, Check] = {
    check.name: check
    for check in (
        *intake.CHECKS,
        *topics.CHECKS,
        *days.CHECKS,
        *joins.CHECKS,
        *iceberg.CHECKS,
        *subjects.CHECKS,
    )
}
"""All checks by name: Dagster's definitions are made of them."""

_DAY = timedelta(days=1)


def run_checks(
    context: StageContext,
    checks: Collection[str],
    *,
    now: datetime,
    names: Collection[str],
    limits: Mapping[str, CheckLimits],
    since: datetime | None = None,
    day: date | None = None,
) -> tuple[CheckOutcome, ...]:
    """Runs checks by name for the tables named.

    The ledger is checked for the conversions from `since` on, by default of the last 24 hours, or for those of objects
    with rows of `day`.
    """
    tables = context.choose_tables(names)
    request = CheckRequest(tables=tables, limits=limits, now=now, since=since or now - _DAY, day=day)
    return tuple(outcome for check in sorted(checks) for outcome in CHECKS[check].evaluate(context, request))
