"""Repair in parts: each as big as a batch and committed by itself, and an error of one partition is an entry."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta

import pytest

from prism_assets.domain.errors import AccessDenied, MissingBucket, PrismError, StoreUnavailable, WrongUse
from prism_assets.domain.tables.definition import Definitions
from prism_assets.domain.work.repair import RepairResult, RepairTask
from prism_assets.objectstore.config import ObjectInfo
from prism_assets.objectstore.stores import Stores
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.engines import PausingEngine, PoisonedEngine, Through, VanishingEngine, another_worker
from prism_assets_tests.stages.test_repair import (
    NOON,
    as_of_another_version,
    counts,
    events,
    everything,
    lengths,
    small_keys,
    some_objects,
)
from prism_assets_tests.world import World

__all__ = ["events"]


@dataclass
class FaultyStores:
    """Raises an error where keys of some day are listed, after the first `sound` listings."""

    inner: Stores
    error: PrismError
    day: str = ""
    sound: int = 0
    listings: list[str] = field(default_factory=list)

    def get(self, bucket: str, key: str) -> bytes:
        return self.inner.get(bucket, key)

    def check_bucket(self, bucket: str) -> None:
        next(iter(self.list(bucket, "prism-assets-bucket-check/")), None)

    def list(self, bucket: str, prefix: str, *, after: str | None = None) -> Iterator[ObjectInfo]:
        if not prefix.endswith("prism-erasures/"):
            self.listings.append(prefix)
            if len(self.listings) > self.sound and self.day in prefix:
                raise self.error
        return self.inner.list(bucket, prefix, after=after)


def with_stores(world: World, stores: FaultyStores) -> World:
    return dataclasses.replace(world, context=dataclasses.replace(world.context, stores=stores))  # type: ignore[arg-type]


def limited(world: World, **settings: int) -> World:
    """The same world with other settings."""
    changed = world.settings.model_copy(update=settings)
    return dataclasses.replace(world, context=dataclasses.replace(world.context, settings=changed))


def some_days(world: World, count: int) -> list[date]:
    """One object of each day up to the one of NOON, and all of them lost."""
    days = [utc(NOON) - timedelta(days=count - 1 - offset) for offset in range(count)]
    for day in days:
        world.drop(some_rows(1, day))
    world.stream(NOON)
    world.context.stores.delete("lake", small_keys(world))
    return [day.date() for day in days]


def test_a_part_has_no_more_objects_than_a_batch(events: World) -> None:
    some_objects(events, count=5)
    before = everything(events)
    events.context.stores.delete("lake", small_keys(events))
    engine = PoisonedEngine(events.context.engine, "nothing")
    report = run_repair(another_worker(limited(events, stream_max_objects=2), engine).context)
    assert counts(report) == (5, 5, 0, 5)
    assert engine.jobs == [2, 2, 1]
    assert everything(events) == before


def test_a_part_has_no_more_bytes_than_a_batch(events: World) -> None:
    some_objects(events, count=3)
    engine = PoisonedEngine(events.context.engine, "nothing")
    report = run_repair(another_worker(limited(events, stream_max_bytes=1), engine).context, deep=True)
    assert counts(report) == (3, 0, 0, 0)
    assert engine.jobs == [1, 1, 1]


def test_no_more_than_a_part_is_planned_ahead_of_many_days(events: World) -> None:
    days = some_days(events, 20)
    engine = PoisonedEngine(events.context.engine, "nothing")
    report = run_repair(another_worker(limited(events, stream_max_objects=5), engine).context)
    assert counts(report) == (len(days), len(days), 0, len(days))
    assert [item.date for item in report.partitions] == days
    assert engine.jobs == [5, 3, 5, 3, 4]


def test_a_part_is_committed_before_the_next_begins(events: World) -> None:
    some_objects(events, count=4)
    as_of_another_version(events)
    events.context.stores.delete("lake", small_keys(events))
    before, seen = lengths(events), list[list[int]]()

    @dataclass
    class Watching(Through):
        def repair(self, tasks: Sequence[RepairTask], definitions: Definitions) -> Iterator[RepairResult]:
            seen.append(lengths(events))
            return self.inner.run(tasks, definitions)

    engine = Watching(events.context.engine)
    assert counts(run_repair(another_worker(limited(events, stream_max_objects=2), engine).context)) == (4, 4, 0, 4)
    assert [[now == then for now, then in zip(part, before, strict=True)] for part in seen] == [
        [True, True, True, True],
        [False, False, True, True],
    ]


@pytest.mark.parametrize(("error", "transient"), [(StoreUnavailable("coughed"), True), (AccessDenied("no"), False)])
def test_a_day_that_cannot_be_listed_is_an_entry_and_the_others_are_repaired(
    events: World, error: PrismError, transient: bool
) -> None:
    first, second, third = some_days(events, 3)
    stores = FaultyStores(events.context.stores, error, f"dt={second}")
    report = run_repair(with_stores(events, stores).context)
    assert counts(report) == (2, 2, 0, 2)
    (left,) = report.irreparable
    assert (left.table, left.date, left.transient) == ("log.events", second, transient)
    assert left.key.endswith(f"/dt={second}/")
    assert left.reason == f"cannot be looked at: {error}"
    assert [item.date for item in report.partitions] == [first, third]


def test_a_store_that_goes_away_ends_the_repair_and_every_table_is_told(events: World) -> None:
    events.apply(a_table("log.other"))
    days = some_days(events, 20)
    events.drop(some_rows(1, utc(NOON)), stream="other")
    events.stream(NOON)
    stores = FaultyStores(events.context.stores, StoreUnavailable("the store is gone"), sound=1)
    report = run_repair(with_stores(events, stores).context)
    assert [(item.table, item.date, item.transient) for item in report.irreparable] == [
        ("log.events", days[0], True),
        ("log.other", days[-1], True),
    ]
    assert report.irreparable[0].reason == ("was not looked at, nor were 19 other days of the table: the store is gone")
    assert len(stores.listings) < 15, "one look at a few days, not at all"


def test_lengths_that_another_run_has_set_are_an_entry_and_other_days_are_committed(events: World) -> None:
    first, second = some_days(events, 2)
    run_repair(events.context)
    as_of_another_version(events)
    before = lengths(events)
    events.context.stores.delete("lake", small_keys(events))

    def interfere() -> None:
        with events.context.database.begin() as connection:
            connection.exec_driver_sql(
                "UPDATE prism_small_objects SET content_length = 1 WHERE prism_staging_object_id = 1"
            )

    report = run_repair(another_worker(events, PausingEngine(events.context.engine, interfere)).context)
    (left,) = report.irreparable
    assert (left.date, left.transient) == (first, True)
    assert "was repaired by another run meanwhile" in left.reason
    assert lengths(events)[0] == 1
    assert lengths(events)[1] not in (1, before[1])
    assert second in [item.date for item in report.partitions]
    assert counts(run_repair(events.context)) == (2, 0, 1, 1)


def test_an_engine_that_goes_away_ends_the_repair_and_what_it_did_is_recorded(events: World) -> None:
    days = some_days(events, 10)
    run_repair(events.context)
    as_of_another_version(events)
    before = lengths(events)
    events.context.stores.delete("lake", small_keys(events))
    engine = VanishingEngine(events.context.engine, results=3)
    report = run_repair(another_worker(limited(events, stream_max_objects=2), engine).context)
    assert engine.jobs == [2, 2], "it is not asked again"
    assert counts(report) == (8, 8, 0, 3)
    assert [now != then for now, then in zip(lengths(events), before, strict=True)] == [True] * 3 + [False] * 7
    assert [(item.date, item.transient) for item in report.irreparable] == [(day, True) for day in days[3:9]]
    assert report.irreparable[0].reason == "has 1 object that was not looked at: the engine is gone"
    assert "nor were 1 other day of the table: the engine is gone" in report.irreparable[-1].reason
    assert counts(run_repair(events.context)) == (10, 7, 0, 7)


def test_a_wrong_name_and_a_missing_bucket_are_raised(events: World) -> None:
    some_objects(events, count=1)
    with pytest.raises(WrongUse):
        run_repair(events.context, names=["log.nothing"])
    stores = FaultyStores(events.context.stores, MissingBucket("no bucket"))
    with pytest.raises(MissingBucket):
        run_repair(with_stores(events, stores).context)
