"""Obstacles of records of join tables: unreadable objects, and watermarks without progress."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.findings import Finding
from prism_assets.domain.records.change_log import log_name
from prism_assets.domain.records.rebuild import how_to_mend
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata.records import record_faults, watermark
from prism_assets.metadata.tables import tables
from prism_assets.stages.findings.subject import FindingCheck, Look, Subject

RECORDS_WAIT = "records_wait"
_LONG = 1_800
"""Seconds without progress of a watermark, on top of the time between two whole listings."""


def find_records(look: Look) -> Iterator[Finding]:
    """Faults of all join tables, and watermarks without progress."""
    for table in look.tables:
        if table.join is not None:
            yield from find_record_faults(look.connection, table)
            yield from _standing_watermark(look.connection, table, look.context.settings.full_scan_seconds, look.now)


def find_record_faults(connection: Connection, table: TableDefinition) -> Iterator[Finding]:
    """One finding for each kind of unreadable objects of a join table. Without locks."""
    yield from _fold_faults(connection, table)
    yield from find_merge_faults(connection, table)


def _fold_faults(connection: Connection, table: TableDefinition) -> Iterator[Finding]:
    """Objects of changes, and of unsettled records."""
    _, changes = tables.load_join(connection, table.table_id)
    if aside := record_faults.load_set_aside(connection, changes.table_id):
        first = min(aside, key=lambda item: item.since)
        yield _finding(
            table,
            counted(
                len(aside),
                "object of changes cannot be read and is set aside",
                "objects of changes cannot be read and are set aside",
            )
            + f", the first since {first.since:%Y-%m-%d %H:%M}Z: {first.fault}; nothing settles that their changes may "
            "be part of",
            f"Run `prism repair --deep --table {log_name(table.name)}`, then `prism fold`",
            since=first.since,
            count=len(aside),
        )
    if unread := record_faults.load_unread(connection, table.table_id, settled=False):
        yield _finding(
            table,
            f"{counted(unread.objects, 'object of folds', 'objects of folds')} cannot be read, one of them as "
            f"{unread.fault}; changes wait in {counted(unread.buckets, 'bucket')}",
            how_to_mend(table.name, several=unread.objects > 1),
            count=unread.objects,
        )


def find_merge_faults(connection: Connection, table: TableDefinition) -> Iterator[Finding]:
    """Unreadable objects of settled records. Without locks."""
    if unread := record_faults.load_unread(connection, table.table_id, settled=True):
        yield _finding(
            table,
            f"{counted(unread.objects, 'object of settled records', 'objects of settled records')} cannot be read nor "
            f"merged, one of them as {unread.fault}",
            f"{how_to_mend(table.name, several=unread.objects > 1)}; then run `prism merge --all --table {table.name}`",
            count=unread.objects,
        )


def _standing_watermark(
    connection: Connection, table: TableDefinition, full_scan_seconds: float, now: datetime
) -> Iterator[Finding]:
    """A watermark behind by more than the time between two whole listings and half an hour."""
    if table.join is None or table.join.window_seconds is None:
        return
    hold = watermark.load_hold(connection, table.table_id)
    behind = (now - hold.time).total_seconds() - watermark.MARGIN_SECONDS
    if behind <= full_scan_seconds + _LONG:
        return
    if hold.stream and hold.listed is None:
        why = f"stream {hold.stream} was never {'read to its end' if hold.is_topic else 'listed completely'}"
    elif hold.object_url and hold.sent and (hold.listed is None or hold.sent <= hold.listed):
        why = f"{hold.object_url}, sent at {hold.sent:%Y-%m-%d %H:%M}Z, is not converted"
    elif hold.stream:
        done = "read to its end" if hold.is_topic else "listed completely"
        why = f"stream {hold.stream} was {done} at {hold.listed:%Y-%m-%d %H:%M}Z last"
    else:
        why = "nothing was discovered since"
    yield _finding(
        table,
        f"its watermark stands at {hold.time:%Y-%m-%d %H:%M}Z, {behind / 3_600:.1f} hours behind, and no record "
        f"settles beyond it: {why}",
        f"`prism stream --table {table.name}` goes on with it, or says why not",
        since=hold.time,
    )


def _finding(
    table: TableDefinition, says: str, remedy: str, *, since: datetime | None = None, count: int = 1
) -> Finding:
    return Finding(
        kind=RECORDS_WAIT,
        table=str(table.name),
        says=says,
        remedy=remedy,
        since=since,
        count=count,
        invariant="I10",
    )


RECORDS = Subject(
    find=find_records,
    check=FindingCheck(
        name=RECORDS_WAIT,
        asset="records",
        about="Folds and merges can read all objects, and the watermark goes.",
        passes="folds and merges can read all objects, and the watermark goes",
    ),
)
