"""Drops: tables that go for good, step by step. Readers' names go first, then objects, then what is recorded."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from prism_assets.domain.names import TableName
from prism_assets.domain.tables import GRACE_DAYS, TableDefinition
from prism_assets.domain.words import counted


class DropState(enum.Enum):
    """How far a drop is, in this order."""

    HIDING = "hiding"
    """Catalogs still show the table, or may: a call of before is on its way."""
    DELETING = "deleting"
    """No reader is sent there any more. Its objects go when the reader lease is over, like all garbage."""
    FORGETTING = "forgetting"
    """Nothing of it lies in the lake. What is recorded of it goes."""
    DROPPED = "dropped"
    """It is gone. Its id and its folder are never given again."""


@dataclass(frozen=True, kw_only=True)
class Drop:
    """A table that is being dropped, or was: `objects` and `content_length` are what lay there when that began.

    It was `never_read` if no batch ever claimed an object of it.
    """

    table_id: int
    name: TableName
    state: DropState
    objects: int
    content_length: int
    begin_time: datetime
    hidden_time: datetime | None
    end_time: datetime | None
    never_read: bool = False

    def lease_ends(self, lease_hours: float) -> datetime | None:
        """When nobody reads any more what he was sent to before the last catalog had forgotten the table."""
        return None if self.hidden_time is None else self.hidden_time + timedelta(hours=lease_hours)

    def may_delete(self, now: datetime, lease_hours: float) -> bool:
        """Whether the objects of the table may go: at once where it was never read, as it had no row to read."""
        ends = self.lease_ends(lease_hours)
        return ends is not None and (self.never_read or now >= ends)


@dataclass(frozen=True, kw_only=True)
class DropFacts:
    """What is known of a table that is to be dropped: since when it is retired, and what is not done yet.

    `unfinished_objects` are staging objects that are not converted, `open_erasures` those that are not proved. A table
    was `never_read` if no batch ever claimed an object of it.
    """

    retired_since: datetime | None
    unfinished_objects: int
    open_erasures: int = 0
    never_read: bool = False
    file: str | None = None
    """Where the folder of table files still defines it."""


def drop_obstacles(table: TableDefinition, facts: DropFacts, now: datetime) -> Iterator[str]:
    """Why a table cannot be dropped yet, and what to do, a sentence each.

    A table that was never read has no row that a reader could miss, so it goes at once. Its waiting objects are
    forgotten: a listing registers them again for the next table with its stream.
    """
    if not facts.never_read:
        if not table.retired or facts.retired_since is None:
            yield f"{table.name} is not retired: say `retired: true` in its file, apply it, and wait {GRACE_DAYS} days"
            return
        end = facts.retired_since + timedelta(days=GRACE_DAYS)
        if now < end:
            yield (
                f"{table.name} is retired since {facts.retired_since:%Y-%m-%d %H:%M}Z, and may be dropped from "
                f"{end:%Y-%m-%d %H:%M}Z on, {GRACE_DAYS} days later"
            )
    if facts.unfinished_objects and not facts.never_read:
        yield (
            f"{table.name} has "
            f"{counted(facts.unfinished_objects, 'staging object that is', 'staging objects that are')} not converted "
            "yet: run `prism stream`, or give them up with `prism stream --give-up KEY`"
        )
    if facts.open_erasures:
        yield (
            f"{table.name} has {counted(facts.open_erasures, 'erasure that is', 'erasures that are')} not proved yet: "
            "wait until `prism status` names none, or the proof that was asked for is never made"
        )
    if facts.file is not None:
        yield f"{table.name} is still defined in {facts.file}: remove the file, or it would be made again"
