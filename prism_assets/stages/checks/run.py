"""Checks of tables: what people want to be told. They decide nothing. Each is one statement for all its tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from prism_assets.domain.limits import CheckLimits
from prism_assets.stages.checks.days import (
    CATALOG_AGREES,
    CLOSING_BLOCKED,
    OBJECT_SIZES,
    UNMERGED_AGE,
    check_catalog_agrees,
    check_closing_blocked,
    check_object_sizes,
    check_unmerged_age,
)
from prism_assets.stages.checks.erasures import ERASURES_PROVED, check_erasures_proved
from prism_assets.stages.checks.iceberg import (
    DAYS_LEFT_OUT,
    FOREIGN_COMMITS,
    HEALTH,
    SECONDS_BEHIND,
    SNAPSHOT_ROWS,
    check_days_left_out,
    check_foreign_commits,
    check_health,
    check_seconds_behind,
    check_snapshot_rows,
)
from prism_assets.stages.checks.intake import (
    QUARANTINE_RATE,
    ROWS_BALANCE,
    SILENT_STREAMS,
    UNDEFINED_FIELDS,
    UNREAD_OBJECTS,
    VALUE_LENGTHS,
    check_quarantine_rate,
    check_rows_balance,
    check_silent_streams,
    check_undefined_fields,
    check_unread_objects,
    check_value_lengths,
)
from prism_assets.stages.checks.joins import (
    AMPLIFICATION,
    BUCKET_SKEW,
    CHANGES_BALANCE,
    EXPIRY_LATE,
    JOIN_RATE,
    PENDING_AGE,
    RECORDS_WAIT,
    TOO_LATE_RATE,
    check_amplification,
    check_bucket_skew,
    check_changes_balance,
    check_expiry_late,
    check_join_rate,
    check_pending_age,
    check_records_wait,
    check_too_late_rate,
)
from prism_assets.stages.checks.outcomes import CheckOutcome
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext

ASK_A_CATALOG = (CATALOG_AGREES, SNAPSHOT_ROWS, HEALTH)
"""Checks that cost a call a table; whoever publishes has just read back what they look at."""

_DAY = timedelta(days=1)


def run_checks(
    context: StageContext,
    checks: Collection[str],
    *,
    now: datetime,
    names: Collection[str],
    limits: Mapping[str, CheckLimits],
    since: datetime | None = None,
) -> tuple[CheckOutcome, ...]:
    """Runs checks by name for the tables named; without `since` the ledger is checked for the last day."""
    tables = context.choose_tables(names)
    request = CheckRequest(tables=tables, limits=limits, now=now, since=since or now - _DAY)
    return tuple(outcome for check in sorted(checks) for outcome in _CHECKS[check](context, request))


_CHECKS: Mapping[str, Callable[[StageContext, CheckRequest], list[CheckOutcome]]] = {
    ROWS_BALANCE: check_rows_balance,
    UNREAD_OBJECTS: check_unread_objects,
    SILENT_STREAMS: check_silent_streams,
    QUARANTINE_RATE: check_quarantine_rate,
    VALUE_LENGTHS: check_value_lengths,
    UNDEFINED_FIELDS: check_undefined_fields,
    OBJECT_SIZES: check_object_sizes,
    UNMERGED_AGE: check_unmerged_age,
    CLOSING_BLOCKED: check_closing_blocked,
    CATALOG_AGREES: check_catalog_agrees,
    ERASURES_PROVED: check_erasures_proved,
    SNAPSHOT_ROWS: check_snapshot_rows,
    FOREIGN_COMMITS: check_foreign_commits,
    SECONDS_BEHIND: check_seconds_behind,
    DAYS_LEFT_OUT: check_days_left_out,
    HEALTH: check_health,
    CHANGES_BALANCE: check_changes_balance,
    EXPIRY_LATE: check_expiry_late,
    TOO_LATE_RATE: check_too_late_rate,
    JOIN_RATE: check_join_rate,
    BUCKET_SKEW: check_bucket_skew,
    PENDING_AGE: check_pending_age,
    RECORDS_WAIT: check_records_wait,
    AMPLIFICATION: check_amplification,
}
