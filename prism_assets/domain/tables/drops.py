"""Drops of tables, step by step: first the names for readers, then objects, then records in PostgreSQL."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import GRACE_DAYS, TableDefinition
from prism_assets.domain.text import counted


class DropState(enum.Enum):
    """The states of a drop in order."""

    HIDING = "hiding"
    """Catalogs show the table, or may show it because an earlier call is in flight."""
    DELETING = "deleting"
    """Readers no longer find the table. Its objects are deleted after the reader lease, like all garbage."""
    FORGETTING = "forgetting"
    """Nothing is left in the lake. Records in PostgreSQL are deleted."""
    DROPPED = "dropped"
    """The table is gone. Its id and folder are never reused."""


@dataclass(frozen=True, kw_only=True)
class Drop:
    """A table being dropped, or already dropped."""

    table_id: int
    name: TableName
    state: DropState
    objects: int
    """Objects at the start of the drop."""
    content_length: int
    """Their bytes."""
    begin_time: datetime
    hidden_time: datetime | None
    end_time: datetime | None
    never_read: bool = False
    """No batch ever claimed an object of the table."""

    def lease_ends(self, lease_hours: float) -> datetime | None:
        """Returns when the last readers from before the last catalog's removal are done."""
        return None if self.hidden_time is None else self.hidden_time + timedelta(hours=lease_hours)

    def may_delete(self, now: datetime, lease_hours: float) -> bool:
        """Whether the table's objects may be deleted. At once if it was never read, because it had no rows."""
        ends = self.lease_ends(lease_hours)
        return ends is not None and (self.never_read or now >= ends)


@dataclass(frozen=True, kw_only=True)
class DropFacts:
    """Facts about a table to be dropped."""

    retired_since: datetime | None
    """Since when the table is retired."""
    unfinished_objects: int
    """Staging objects not converted."""
    open_erasures: int = 0
    """Erasures not proved."""
    never_read: bool = False
    """No batch ever claimed an object of the table."""
    file: str | None = None
    """The table file that still defines it."""
    shared: Mapping[str, Collection[str]] = field(default_factory=dict)
    """The other tables that read the same records of its prefixes, by URL."""


def drop_obstacles(table: TableDefinition, facts: DropFacts, now: datetime) -> Iterator[str]:
    """Yields why a table cannot be dropped yet, with the remedy.

    A table that was never read has no rows, so it is dropped at once. Its waiting objects are forgotten; a listing
    registers them for the next table with their stream.
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
    for url, others in sorted(facts.shared.items()):
        yield (
            f"{table.name} divides {url} with {', '.join(sorted(others))}, and its lines would be in no table: say "
            "`retired: true` in its file, and apply it first"
        )
    if facts.open_erasures:
        yield (
            f"{table.name} has {counted(facts.open_erasures, 'erasure that is', 'erasures that are')} not proved yet: "
            "wait until `prism status` names none, otherwise their proof is never made"
        )
    if facts.file is not None:
        yield f"{table.name} is still defined in {facts.file}: remove the file, or the next apply creates it again"
