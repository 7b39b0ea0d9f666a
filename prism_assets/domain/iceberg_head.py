"""What lies between the head of an Iceberg table that was recorded and the one that its catalog shows now."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from prism_assets.domain.snapshots import FAILED, FOREIGN, KnownTable, RetainedSnapshot


class HeadChange(enum.Enum):
    """How a table in the catalog belongs to what is recorded of it."""

    SAME = "same"
    """The head is the recorded one: what was recorded of each day is what it lists."""
    NEW = "new"
    """Nothing is recorded, and there is no table."""
    OURS = "ours"
    """All that came since is ours: a record was lost by a death, or PostgreSQL restored. Every day is compared."""
    FOREIGN = "foreign"
    """Somebody else has committed to it."""
    LOST = "lost"
    """The catalog no longer names the table that is recorded."""
    REPLACED = "replaced"
    """The catalog names another table under its name."""
    TAKEN = "taken"
    """The name belongs to a table that this installation did not make."""


@dataclass(frozen=True, kw_only=True)
class TableHead:
    """What the catalog shows: `is_ours` if this installation made the table, `others` the snapshots it did not make.

    `was_rolled_back` if the recorded snapshot is still there, and newer than the head.
    """

    identifier: str
    table_uuid: str
    snapshot_id: int | None
    is_ours: bool
    others: Sequence[RetainedSnapshot] = ()
    was_rolled_back: bool = False


def compare_head(known: KnownTable | None, head: TableHead | None) -> HeadChange:
    """Compares the recorded head with the one that was loaded."""
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
    """Why the next publication leaves a table as it is, and the state that is noted with it."""

    state: str
    reason: str


def obstacle_of(known: KnownTable | None, head: TableHead, table: str, on_foreign: str) -> Obstacle | None:
    """Why a table is left as it is; None if it may be published.

    Its name is another's, which a person has to decide about; or somebody else was at it, which is told once before it
    is taken back, or waits for a person, as `on_foreign` says.
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
        rest = "the next run puts back what was published"
    return Obstacle(FOREIGN, f"{_who_committed(head)}; {rest}")


def _whose_name(head_change: HeadChange, head: TableHead, table: str) -> str:
    if head_change is HeadChange.REPLACED:
        return (
            f"the catalog names another table as {head.identifier} than the one that was published: somebody dropped "
            f"it and made one of that name; rename theirs, or have `prism iceberg register {table}` take it out"
        )
    return (
        f"the catalog has a table {head.identifier} that this installation did not make: move it away, give this "
        "installation another database by PRISM_ICEBERG_DATABASE_SUFFIX, or take `iceberg:` out of the table file"
    )


def _who_committed(head: TableHead) -> str:
    if not head.others:
        return f"somebody else set {head.identifier} back to its snapshot {head.snapshot_id}; only the publisher may"
    last = head.others[0]
    return (
        f"somebody else committed to {head.identifier}: {len(head.others)} of its snapshots, the last one "
        f"{last.snapshot_id} of {last.time:%Y-%m-%d %H:%M:%S}Z; only the publisher may"
    )
