"""Compares the recorded head of an Iceberg table with the head in its catalog."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from prism_assets.domain.iceberg.snapshots import FAILED, FOREIGN, KnownTable, RetainedSnapshot


class HeadChange(enum.Enum):
    """The relation between a table in the catalog and its record."""

    SAME = "same"
    """The head is the recorded one, so the recorded days are its content."""
    NEW = "new"
    """There is no record and no table."""
    OURS = "ours"
    """All later commits are ours: a death lost the record, or PostgreSQL was restored. Every day is compared."""
    FOREIGN = "foreign"
    """Another writer has committed."""
    LOST = "lost"
    """The catalog no longer has the recorded table."""
    REPLACED = "replaced"
    """The catalog has another table under this name."""
    TAKEN = "taken"
    """The table under this name was made by another installation."""


@dataclass(frozen=True, kw_only=True)
class TableHead:
    """The head in the catalog."""

    identifier: str
    table_uuid: str
    snapshot_id: int | None
    is_ours: bool
    """Whether this installation made the table."""
    others: Sequence[RetainedSnapshot] = ()
    """Foreign snapshots."""
    was_rolled_back: bool = False
    """Whether the recorded snapshot is retained and newer than the head."""


def compare_head(known: KnownTable | None, head: TableHead | None) -> HeadChange:
    """Compares the recorded head with the loaded one."""
    recorded = known is not None and known.table_uuid is not None
    if head is None:
        return HeadChange.LOST if recorded else HeadChange.NEW
    if known is None or known.table_uuid is None:
        if not head.is_ours:
            return HeadChange.TAKEN
        return HeadChange.FOREIGN if head.others else HeadChange.OURS
    if head.table_uuid != known.table_uuid:
        return HeadChange.REPLACED
    if not head.is_ours:
        return HeadChange.TAKEN
    if head.snapshot_id == known.snapshot_id:
        return HeadChange.SAME
    return HeadChange.FOREIGN if head.others or head.was_rolled_back else HeadChange.OURS


@dataclass(frozen=True)
class Obstacle:
    """Why the next publication skips a table, and the state to record."""

    state: str
    reason: str


def obstacle_of(known: KnownTable | None, head: TableHead, table: str, on_foreign: str) -> Obstacle | None:
    """Returns why a table is skipped, or None if it may be published.

    If the name belongs to another table, a person must decide. A foreign commit is reported once and then undone, or
    waits for a person, as set by `on_foreign`.
    """
    change = compare_head(known, head)
    if change in (HeadChange.REPLACED, HeadChange.TAKEN):
        return Obstacle(FAILED, _whose_name(change, head, table))
    if change is not HeadChange.FOREIGN:
        return None
    if on_foreign == "stop":
        rest = f"as `on_foreign: stop` says, nothing is taken back before `prism iceberg restore {table}`"
    elif known is not None and known.state == FOREIGN:
        return None
    else:
        rest = "the next run restores the published content"
    return Obstacle(FOREIGN, f"{_who_committed(head)}; {rest}")


def _whose_name(head_change: HeadChange, head: TableHead, table: str) -> str:
    if head_change is HeadChange.REPLACED:
        return (
            f"the catalog's table {head.identifier} is not the published one: somebody dropped ours and created "
            f"another; rename theirs, or have `prism iceberg register {table}` replace it"
        )
    return (
        f"the catalog has a table {head.identifier} that this installation did not make: move it away, give this "
        "installation another database by PRISM_ICEBERG_DATABASE_SUFFIX, or remove `iceberg:` from the table file"
    )


def _who_committed(head: TableHead) -> str:
    if not head.others:
        return f"somebody else set {head.identifier} back to its snapshot {head.snapshot_id}; only the publisher may"
    last = head.others[0]
    return (
        f"somebody else committed to {head.identifier}: {len(head.others)} of its snapshots, the last one "
        f"{last.snapshot_id} of {last.time:%Y-%m-%d %H:%M:%S}Z; only the publisher may"
    )
