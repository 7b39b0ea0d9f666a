"""Checks of the records of join tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from prism_assets.domain.days.limits import CheckLimits
from prism_assets.domain.records.change_log import log_name
from prism_assets.domain.records.joins import DELETE, JoinOptions
from prism_assets.domain.streams.reasons import TOO_LATE
from prism_assets.domain.tables.amplification import MOST_FACTOR, Amplification
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted, span
from prism_assets.metadata.intake.quarantine import quarantine_reasons, quarantine_shares
from prism_assets.metadata.records import join_figures
from prism_assets.metadata.records.join_figures import FoldBalance, FoldSums, ShownTooLong, Unreadable
from prism_assets.stages.checks.outcomes import Check, CheckOutcome, Figures, failed, passed
from prism_assets.stages.checks.request import CheckRequest
from prism_assets.stages.context import StageContext

CHANGES_BALANCE = "changes_balance"
EXPIRY_LATE = "expiry_late"
TOO_LATE_RATE = "too_late_rate"
JOIN_RATE = "join_rate"
BUCKET_SKEW = "bucket_skew"
PENDING_AGE = "pending_age"
AMPLIFICATION = "amplification"

_DAY = timedelta(days=1)
_FOLD_SECONDS = 600
_CATALOG_SECONDS = 300
"""Time for a catalog run after a fold. Its sensor ticks twice a minute."""
_ENOUGH_ROWS = 100
"""Rows per bucket. With fewer rows, chance alone makes one bucket larger than others."""
_SKEW = 4
_MOST_SHARE = 0.6


def _join_of(table: TableDefinition) -> JoinOptions:
    assert table.join is not None
    return table.join


def check_changes_balance(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether each change taken by a fold is folded or waits, and whether folds have taken all changes of the log."""
    with context.database.begin() as connection:
        found = join_figures.fold_balances(connection, request.ids, request.since)
    return [judge_balance(table, found[table.table_id]) for table in request.tables]


def judge_balance(table: TableDefinition, balance: FoldBalance) -> CheckOutcome:
    """Fails for a single change too many or too few."""
    figures: Figures = {
        "changes taken": balance.taken,
        "changes folded": balance.folded,
        "changes that wait": balance.pending,
        "days of the log": balance.days,
        "days out of balance": balance.unbalanced_days,
    }
    sentence = f"{counted(balance.taken, 'change')} taken = {balance.folded:,} folded + {balance.pending:,} that wait"
    parts = list(balance.unbalanced)
    if balance.taken != balance.folded + balance.pending:
        parts.insert(
            0,
            f"of {counted(balance.taken, 'change')} taken {balance.folded:,} are folded, and {balance.pending:,} wait",
        )
    if not parts:
        return passed(
            table, CHANGES_BALANCE, f"{sentence}, and the log agrees for {counted(balance.days, 'day')}", figures
        )
    do = "Changes may be lost or counted twice: keep all objects, and report it"
    return failed(table, CHANGES_BALANCE, f"{'; '.join(parts)}. {do}", figures)


def check_expiry_late(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether settled records with `after: delete` disappear for readers in time."""
    slack = {table.table_id: _expiry_slack(table) for table in request.tables if _join_of(table).after == DELETE}
    with context.database.begin() as connection:
        found = join_figures.shown_too_long(connection, slack) if slack else {}
    return [judge_expiry(table, found.get(table.table_id)) for table in request.tables]


def _expiry_slack(table: TableDefinition) -> float:
    """Seconds that a fold and the next catalog run may take."""
    return float(max(_FOLD_SECONDS, _join_of(table).publish.every_seconds) + _CATALOG_SECONDS)


def judge_expiry(table: TableDefinition, late: ShownTooLong | None) -> CheckOutcome:
    """Fails for a single late record."""
    minutes = _expiry_slack(table) / 60
    if _join_of(table).after != DELETE:
        return passed(table, EXPIRY_LATE, "records stay when they settle")
    if late is None:
        figures: Figures = {"objects": 0, "rows in them": 0}
        sentence = f"no record is readable {minutes:g} minutes after it settles"
        return passed(table, EXPIRY_LATE, sentence, figures)
    behind = (late.watermark - late.earliest).total_seconds() / 60
    figures = {"objects": late.objects, "rows in them": late.rows, "minutes behind": round(behind, 1)}
    return failed(
        table,
        EXPIRY_LATE,
        f"{counted(late.objects, 'object still shows', 'objects still show')} readers records that should be gone: the "
        "first settled at "
        f"{_at(late.earliest)}, and the watermark stands at {_at(late.watermark)}, {behind:.0f} minutes after "
        f"that (limit {minutes:g}). `prism fold --table {table.name}` and then `prism catalog --table {table.name}` "
        "remove them, or say why they cannot",
        figures,
    )


def check_too_late_rate(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """The share of the last day's lines that came too late to be joined."""
    since = request.now - _DAY
    with context.database.begin() as connection:
        logs = join_figures.load_logs(connection, request.ids)
        shares = {item.table_id: item.lines for item in quarantine_shares(connection, logs.values(), since)}
        reasons = quarantine_reasons(connection, logs.values(), since)
    return [
        judge_too_late(
            table,
            shares.get(logs[table.table_id], 0),
            dict(reasons.get(logs[table.table_id], ())).get(TOO_LATE, 0),
            request.limits_of(table),
        )
        for table in request.tables
    ]


def judge_too_late(table: TableDefinition, lines: int, late: int, limits: CheckLimits) -> CheckOutcome:
    """Fails above the limit."""
    share = late / lines if lines else 0.0
    figures: Figures = {"lines in": lines, "lines too late": late, "share": share}
    sentence = f"{late} of {lines} lines of the last day were too late to be joined ({share:.2%})"
    if share <= limits.too_late_rate:
        return passed(table, TOO_LATE_RATE, sentence, figures)
    return failed(
        table,
        TOO_LATE_RATE,
        f"{sentence}, above the limit of {limits.too_late_rate:.2%}: they were sent more than lateness "
        f"({span(_join_of(table).lateness_seconds)}) after their event. `prism join advise {table.name}` shows how "
        f"late changes are sent, `prism quarantine list --table {log_name(table.name)} --reason {TOO_LATE}` which ones",
        figures,
    )


def check_join_rate(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """The share of records that had all groups when they settled."""
    with context.database.begin() as connection:
        found = join_figures.fold_sums(connection, request.ids, request.now - _DAY)
    return [judge_join_rate(table, found.get(table.table_id), request.limits_of(table)) for table in request.tables]


def judge_join_rate(table: TableDefinition, sums: FoldSums | None, limits: CheckLimits) -> CheckOutcome:
    """Fails below the limit of the table file.

    Without a limit it passes, because streams may well have different keys.
    """
    settled, joined = (sums.settled, sums.joined) if sums else (0, 0)
    if not settled:
        return passed(table, JOIN_RATE, "no record settled in the last day", {"records settled": 0})
    rate = joined / settled
    figures: Figures = {"records settled": settled, "records with all groups": joined, "share": rate}
    sentence = f"{joined} of {counted(settled, 'record')} that settled in the last day have all groups ({rate:.2%})"
    if rate >= limits.join_rate:
        return passed(table, JOIN_RATE, sentence, figures)
    return failed(
        table,
        JOIN_RATE,
        f"{sentence}, below the limit of {limits.join_rate:.2%}: a stream may be missing changes, or write keys that "
        f"no other has; `prism status --table {log_name(table.name)}` shows what arrived, and `prism join advise "
        f"{table.name}` whether the window is too short",
        figures,
    )


def check_bucket_skew(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether one bucket has so many rows that the others do not help."""
    with context.database.begin() as connection:
        sums = join_figures.fold_sums(connection, request.ids, request.now - _DAY)
        records = join_figures.bucket_records(connection, request.ids)
    return [
        judge_skew(
            table,
            dict(enumerate(sums[table.table_id].bucket_changes)) if table.table_id in sums else {},
            records.get(table.table_id, {}),
        )
        for table in request.tables
    ]


def judge_skew(table: TableDefinition, changes: Mapping[int, int], records: Mapping[int, int]) -> CheckOutcome:
    """Fails if the largest bucket has four times the mean or, with few buckets, more than 60 % of all rows.

    Judges the changes of a day and the unsettled records, because a hot key has many of either kind.
    """
    buckets = _join_of(table).buckets
    limit = min(_MOST_SHARE, _SKEW / buckets)
    figures: dict[str, int | float] = {"buckets": buckets}
    parts = []
    for what, rows in (("changes of the last day", changes), ("records that may still change", records)):
        total, greatest = sum(rows.values()), max(rows.values(), default=0)
        if not total:
            continue
        figures |= {what: total, f"greatest bucket of {what} against the mean": round(greatest * buckets / total, 2)}
        if buckets > 1 and total >= _ENOUGH_ROWS * buckets and greatest > limit * total:
            place = next(bucket for bucket, count in rows.items() if count == greatest)
            parts.append(
                f"bucket {place} has {greatest} of {total} {what}, {greatest * buckets / total:.1f} times the mean"
            )
    if not parts:
        return passed(
            table, BUCKET_SKEW, f"no bucket has {limit:.0%} of all rows of {counted(buckets, 'bucket')}", figures
        )
    return failed(
        table,
        BUCKET_SKEW,
        f"{'; '.join(parts)}. All rows of a key are in one bucket, and one task folds it: look for a key that many "
        "changes have, such as an empty text, and leave it out with `reject`. More buckets do not divide a key",
        figures,
    )


def check_pending_age(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether changes become readable in the time promised by the table file."""
    with context.database.begin() as connection:
        found = join_figures.unreadable_changes(connection, request.ids)
    return [judge_pending(table, found.get(table.table_id), request.now) for table in request.tables]


def judge_pending(table: TableDefinition, waiting: Unreadable | None, now: datetime) -> CheckOutcome:
    """Fails if a change waits longer than `publish.stale` plus the time of a fold and a catalog run."""
    policy = _join_of(table).publish
    limit = policy.stale_seconds + max(_FOLD_SECONDS, policy.every_seconds) + _CATALOG_SECONDS
    oldest = waiting.oldest if waiting else None
    age = max(0.0, (now - oldest).total_seconds()) if oldest else 0.0
    figures: Figures = {"oldest in minutes": round(age / 60, 1), "limit in minutes": round(limit / 60, 1)}
    if waiting is None or oldest is None:
        return passed(table, PENDING_AGE, "all changes are readable", figures)
    if age <= limit:
        return passed(table, PENDING_AGE, f"the oldest change waits for {span(age)} (limit {span(limit)})", figures)
    where = {
        waiting.not_folded: f"no fold has taken it; `prism fold --table {table.name}` says why",
        waiting.waits: f"folds leave it in the pending changes; `prism fold --table {table.name}` says why",
        waiting.not_published: f"it is folded and not published; `prism catalog --table {table.name}` says why",
    }[oldest]
    sentence = f"the oldest change is not readable for {span(age)} (limit {span(limit)}): {where}"
    return failed(table, PENDING_AGE, sentence, figures)


def check_amplification(context: StageContext, request: CheckRequest) -> list[CheckOutcome]:
    """Whether folds write far more than has changed."""
    with context.database.begin() as connection:
        found = join_figures.fold_sums(connection, request.ids, request.now - _DAY)
    return [
        judge_amplification(table, found[table.table_id].written if table.table_id in found else None)
        for table in request.tables
    ]


def judge_amplification(table: TableDefinition, written: Amplification | None) -> CheckOutcome:
    """Fails above 50 written rows per change, unless folds wrote little in total."""
    if written is None:
        return passed(table, AMPLIFICATION, "nothing was folded in the last day", {"rows written per change": 0.0})
    figures: Figures = {
        "rows written": written.rows_written,
        "changes folded": written.changes_folded,
        "rows written per change": round(written.factor, 2),
    }
    sentence = (
        f"folds of the last day wrote {counted(written.rows_written, 'row')} for "
        f"{counted(written.changes_folded, 'change')}, {written.factor:.1f} for each"
    )
    if not written.is_too_much:
        return passed(table, AMPLIFICATION, sentence, figures)
    join = _join_of(table)
    why = (
        "with window: forever a fold writes all records of a bucket again, changed or not"
        if join.window_seconds is None
        else "changes of records far apart in time make folds write many objects again"
    )
    return failed(
        table,
        AMPLIFICATION,
        f"{sentence} (limit {MOST_FACTOR}): {why}. Let changes wait for longer with publish.stale "
        f"({span(join.publish.stale_seconds)} now) and publish.dirty ({join.publish.dirty:g} now); `prism join advise "
        f"{table.name}` says what a window would cost",
        figures,
    )


def _at(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}Z"


CHECKS = (
    Check(
        name=CHANGES_BALANCE,
        asset="records",
        about="Changes taken = folded + waiting, and the log holds as many of each day as folds have taken.",
        evaluate=check_changes_balance,
        is_error=True,
        blocking=True,
    ),
    Check(
        name=EXPIRY_LATE,
        asset="records",
        about="Records with `after: delete` disappear within one fold and one catalog run after they settle.",
        evaluate=check_expiry_late,
        is_error=True,
    ),
    Check(
        name=TOO_LATE_RATE,
        asset="records",
        about="The share of lines of the last day that came too late is within its limit.",
        evaluate=check_too_late_rate,
    ),
    Check(
        name=JOIN_RATE,
        asset="records",
        about="The share of records that have all groups when they settle is within its limit.",
        evaluate=check_join_rate,
    ),
    Check(
        name=BUCKET_SKEW,
        asset="records",
        about="No bucket has far more changes or records than the others.",
        evaluate=check_bucket_skew,
    ),
    Check(
        name=PENDING_AGE,
        asset="records",
        about="No change waits to be readable for longer than the table file says.",
        evaluate=check_pending_age,
    ),
    Check(
        name=AMPLIFICATION,
        asset="records",
        about=f"Folds write at most {MOST_FACTOR} rows for a change.",
        evaluate=check_amplification,
    ),
)
