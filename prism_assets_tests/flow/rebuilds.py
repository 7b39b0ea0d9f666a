"""Rebuilds within state machines, of existing days; other work may postpone them."""

from __future__ import annotations

from datetime import date, datetime

from prism_assets.stages.rebuild.report import RebuildReport
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets_tests.flow.test_any_order import TABLE
from prism_assets_tests.world import World

_PUT_OFF = (
    "it is not rebuilt: it is",
    "another rebuild is working on it",
    "not proved yet",
    "erased rows, or may hold",
)


def days_of(world: World) -> list[date]:
    """Returns the days with a partition, in order."""
    with world.context.database.begin() as connection:
        return sorted(connection.exec_driver_sql("SELECT partition_date FROM prism_partitions").scalars())


def rebuild(world: World, day: date, now: datetime) -> RebuildReport:
    """Rebuilds a day. Only a postponement may go wrong."""
    report = run_rebuild(world.context, TABLE, day=day, now=now)
    assert [error for error in report.errors if not any(words in error for words in _PUT_OFF)] == []
    return report
