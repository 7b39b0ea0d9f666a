"""A day of log.events that grows by one object at a time, and queries on its Iceberg table."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table.snapshots import Snapshot

from prism_assets import failpoints
from prism_assets.domain.iceberg.commit import IcebergCommit
from prism_assets.domain.iceberg.snapshots import KnownTable
from prism_assets.metadata.iceberg import iceberg_tables
from prism_assets.stages.iceberg.report import IcebergTableReport
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets_tests import snapshots
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

TABLE = a_table(iceberg="true", merge="{interval: 0}")
DAY = "2026-03-01"
NOON, AFTER, LATER = f"{DAY}T12:00", "2026-03-02T00:10", "2026-03-02T02:00"


def streamed(world: World, now: str = NOON, *, rows: int = 3, at: str = f"{DAY}T11:00") -> list[int]:
    """Streams one object with some rows and returns their ids."""
    made = some_rows(rows, utc(at))
    world.drop(made)
    world.stream(now)
    return [row["id"] for row in made]


def published(world: World, objects: int = 2) -> list[int]:
    """Some objects of the open day, published one by one; returns the ids of their rows."""
    world.apply(TABLE)
    ids = []
    for _ in range(objects):
        ids += streamed(world)
        world.iceberg(NOON)
    return ids


def attempt(world: World, now: str = NOON, **options: Any) -> IcebergTableReport:
    """Runs `prism iceberg publish`. It may fail."""
    (report,) = run_iceberg(world.context, now=utc(now), **{"ignore_pace": True, **options}).tables
    return report


def reasons(report: IcebergTableReport) -> list[str]:
    """Returns the problems of a report."""
    return [problem.reason for problem in report.problems]


def is_sound(world: World, ids: list[int]) -> bool:
    """Whether readers see just these rows, each once, and every retained snapshot can be read."""
    assert world.iceberg_ids() == sorted(ids)
    assert list(snapshots.faults(world.iceberg_table(), world.root / "buckets")) == []
    return True


def head(world: World) -> Snapshot:
    """The head of the table."""
    found = world.iceberg_table().current_snapshot()
    assert found is not None
    return found


def commits(world: World) -> list[IcebergCommit]:
    """The log of log.events, the newest first."""
    with world.context.database.begin() as connection:
        return iceberg_tables.load_commits(connection, 1, 1_000)


def recorded(world: World) -> KnownTable:
    """Returns the record of log.events."""
    with world.context.database.begin() as connection:
        return iceberg_tables.load_known_tables(connection, [1])[1]


def dirty_days(world: World) -> int:
    """How many days of log.events wait for a commit."""
    with world.context.database.begin() as connection:
        found = iceberg_tables.count_dirty_days(connection, [1])
    return found[1].days if found else 0


def fails_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    """Fails the first pass through a failpoint, and no later one."""
    monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"{point}=1*raise(InjectedFault)"))
