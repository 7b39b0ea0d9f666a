"""The publisher in memory: the life of a partition, shown without a catalog server."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import date

from prism_assets.domain.errors import InvariantBroken, PrismError
from prism_assets.domain.files.data_file import PartitionContent
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.publishers.base import UNOBSERVED, CallObserver
from prism_assets.publishers.memory import MemoryPublisher
from prism_assets.stages.catalog.run import run_catalog
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

DAY = date(2026, 3, 1)
NOON, AFTER = "2026-03-01T12:00", "2026-03-02T00:10"


def shown(world: World, publisher: MemoryPublisher) -> PartitionContent:
    (table,) = world.context.choose_tables(None)
    return publisher.contents[table.name][DAY]


def through(world: World, publisher: MemoryPublisher) -> World:
    return dataclasses.replace(world, context=dataclasses.replace(world.context, publisher=publisher))


def test_a_partition_is_shown_through_its_life(world: World) -> None:
    publisher = MemoryPublisher()
    there = through(world, publisher)
    there.apply(a_table(merge="{interval: 0}"))
    for _ in range(3):
        there.drop(some_rows(4, utc(NOON)))
    there.stream(NOON)
    there.catalog(NOON)
    assert (shown(there, publisher).publication.is_live_prefix, shown(there, publisher).row_count) == (True, 12)
    there.catalog(AFTER)
    assert len(shown(there, publisher).small_objects) == 3
    there.merge(AFTER)
    there.catalog(AFTER)
    content = shown(there, publisher)
    assert (len(content.ranges), len(content.small_objects), content.row_count) == (1, 0, 12)
    there.drop(some_rows(1, utc(NOON)))
    there.stream(AFTER)
    there.catalog(AFTER)
    content = shown(there, publisher)
    assert (len(content.ranges), len(content.small_objects), content.row_count) == (1, 1, 13)
    assert not there.catalog(AFTER).changed


@dataclass
class Refusing(MemoryPublisher):
    """Shows no partition of some day."""

    refused: date = DAY

    def publish(
        self,
        table: TableDefinition,
        contents: Mapping[date, PartitionContent],
        observer: CallObserver = UNOBSERVED,
        recorded: Collection[date] | None = None,
    ) -> dict[date, PrismError]:
        others = {day: content for day, content in contents.items() if day != self.refused}
        return super().publish(table, others, observer, recorded) | {self.refused: InvariantBroken("not this one")}


def test_a_day_that_is_refused_is_recorded_nowhere_and_tried_again(world: World) -> None:
    there = through(world, Refusing())
    there.apply(a_table())
    there.drop(some_rows(4, utc(NOON)))
    there.stream(NOON)
    for _ in range(2):
        (report,) = run_catalog(there.context, now=utc(NOON)).tables
        assert [str(problem) for problem in report.problems] == [f"log.events {DAY}: not this one"]
        assert report.published == ()
    publisher = MemoryPublisher()
    there = through(world, publisher)
    there.catalog(NOON)
    assert shown(there, publisher).row_count == 4
