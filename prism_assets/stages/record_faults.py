"""What keeps records of a join table back, in sentences: for reports, for status, doctor and what is left over."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.change_log import log_name
from prism_assets.domain.record_rebuild import how_to_mend
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted
from prism_assets.metadata import record_faults, settle_clock, tables

_LONG = 1_800
"""Seconds that a settle clock may stand, behind what listings of whole streams take."""


def load_record_faults(connection: Connection, table: TableDefinition) -> list[str]:
    """A sentence for each kind of objects that folds or merges of a join table cannot read. Without locks."""
    return [*load_fold_faults(connection, table), *load_merge_faults(connection, table)]


def load_fold_faults(connection: Connection, table: TableDefinition) -> list[str]:
    """Of changes and of records that may still change; none where folds can read everything. Without locks."""
    _, changes = tables.load_join(connection, table.table_id)
    told = []
    if aside := record_faults.load_set_aside(connection, changes.table_id):
        first = min(aside, key=lambda item: item.since)
        told.append(
            counted(
                len(aside),
                "object of changes cannot be read and is set aside",
                "objects of changes cannot be read and are set aside",
            )
            + f", the first since {first.since:%Y-%m-%d %H:%M}Z: {first.fault}; nothing settles that their changes may "
            f"be part of; run `prism repair --deep --table {log_name(table.name)}`, then `prism fold`"
        )
    if unread := record_faults.load_unread(connection, table.table_id, settled=False):
        told.append(
            f"{counted(unread.objects, 'object of folds', 'objects of folds')} cannot be read, "
            f"one of them as {unread.fault}; changes wait in {counted(unread.buckets, 'bucket')}; "
            + how_to_mend(table.name, several=unread.objects > 1)
        )
    return told


def load_merge_faults(connection: Connection, table: TableDefinition) -> list[str]:
    """Of settled records; none where merges can read everything. Without locks."""
    unread = record_faults.load_unread(connection, table.table_id, settled=True)
    if not unread:
        return []
    return [
        f"{counted(unread.objects, 'object of settled records', 'objects of settled records')} cannot be read nor "
        f"merged, one of them as {unread.fault}; {how_to_mend(table.name, several=unread.objects > 1)} and run "
        f"`prism merge --all --table {table.name}`"
    ]


def load_waits(
    connection: Connection, table: TableDefinition, full_scan_seconds: float, now: datetime
) -> tuple[str, ...]:
    """What records of a table wait for that does not come by itself: faults, and a settle clock that stands."""
    if table.join is None:
        return ()
    stands = _load_standing_clock(connection, table, full_scan_seconds, now)
    return (*load_record_faults(connection, table), *([stands] if stands else []))


def _load_standing_clock(
    connection: Connection, table: TableDefinition, full_scan_seconds: float, now: datetime
) -> str | None:
    """Since when the settle clock of a join table stands, and what holds it; None if it goes, or nothing settles.

    A clock goes as long as it is behind no more than listings of whole streams are apart, and half an hour.
    """
    assert table.join is not None
    if table.join.window_seconds is None:
        return None
    hold = settle_clock.load_hold(connection, table.table_id)
    behind = (now - hold.time).total_seconds() - settle_clock.MARGIN_SECONDS
    if behind <= full_scan_seconds + _LONG:
        return None
    if hold.stream and hold.listed is None:
        why = f"stream {hold.stream} was never listed completely"
    elif hold.object_url and hold.sent and (hold.listed is None or hold.sent <= hold.listed):
        why = f"{hold.object_url}, sent at {hold.sent:%Y-%m-%d %H:%M}Z, is not converted"
    elif hold.stream:
        why = f"stream {hold.stream} was listed completely at {hold.listed:%Y-%m-%d %H:%M}Z last"
    else:
        why = "nothing was discovered since"
    return (
        f"its settle clock stands at {hold.time:%Y-%m-%d %H:%M}Z, {behind / 3_600:.1f} hours behind, and no record "
        f"settles beyond it: {why}; `prism stream --table {table.name}` goes on with it, or says why not"
    )
