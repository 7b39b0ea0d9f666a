"""Drops under way: garbage collections continue them."""

from __future__ import annotations

from collections.abc import Iterator

from prism_assets.domain.findings import Acts, Finding
from prism_assets.metadata.tables.drops import load_drops
from prism_assets.stages.drop.report import DropStatus
from prism_assets.stages.findings.subject import Look, Subject


def find_drops(look: Look) -> Iterator[Finding]:
    """All open drops. Dropped tables are never among the tables of a look."""
    for drop in load_drops(look.connection, open_only=True) if look.has_drops else ():
        status = DropStatus.of(drop, look.context.settings.gc_reader_lease_hours)
        yield Finding(
            kind="drop",
            table=status.table,
            says=f"is being dropped since {status.begin_time:%Y-%m-%d %H:%M}Z; waits for {status.waits_for}",
            acts=Acts.TIME,
            since=status.begin_time,
        )


DROPS = Subject(find=find_drops)
