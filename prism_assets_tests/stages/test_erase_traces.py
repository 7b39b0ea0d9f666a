"""No value of an erased row stays in column metrics, or in manifests of Iceberg tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import pytest

from prism_assets.stages.erase.report import ErasureStatus
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.requests import Requests, a_join_table, front
from prism_assets_tests.stages.aging import gc, hours_pass, keys
from prism_assets_tests.stages.iceberg.clients import a_stranger
from prism_assets_tests.stages.test_erase import later
from prism_assets_tests.world import World

NOON, NEXT_DAY = "2026-03-01T12:00", "2026-03-02T01:00"
CANARY = "zoe.q@ex.org"
MAILS = ("anna@ex.org", "bert@ex.org", CANARY)
TABLES_OF_WORDS = """
SELECT table_name, column_name FROM information_schema.columns
JOIN information_schema.tables USING (table_schema, table_name)
WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND table_name LIKE 'prism%%'
    AND data_type IN ('jsonb', 'text', 'character varying')
"""


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0) as made:
        yield made


def text(*more: str) -> str:
    columns = ["{name: email, type: string, length: 60}", *more]
    return a_table(merge="{interval: 0}", columns=columns, iceberg="{metrics: [time, id, email]}")


def arrive(world: World, parts: Sequence[Sequence[str]]) -> None:
    for mails in parts:
        world.drop([row | {"email": mail} for row, mail in zip(some_rows(len(mails), utc(NOON)), mails, strict=True)])
    world.stream(NOON)
    world.catalog(NOON)
    world.iceberg(NOON)


def switched(world: World) -> None:
    world.catalog(NEXT_DAY)
    world.merge(NEXT_DAY, everything=True)
    world.catalog(NEXT_DAY)
    world.catalog(NEXT_DAY)
    world.iceberg(NEXT_DAY)


def go_on(world: World) -> tuple[ErasureStatus, ...]:
    """Runs one round: catalogs publish, the reader lease ends, and garbage is collected."""
    world.catalog(NEXT_DAY)
    world.iceberg(NEXT_DAY)
    hours_pass(world, 100)
    return continue_erasures(world.context, now=later(), forced=True).erasures


def proved(world: World, where: str, name: str = "log.events", **more: Any) -> None:
    assert run_erase(world.context, name, where, **more).errors == ()
    for _ in range(4):
        if not [item for item in go_on(world) if item.state != "proved"]:
            return
    raise AssertionError("it is not proved")


def places_of(world: World, value: str = CANARY) -> list[str]:
    """Where PostgreSQL has a value, but for the predicate itself."""
    with world.context.database.begin() as connection:
        columns = connection.exec_driver_sql(TABLES_OF_WORDS).all()
        counts = {
            f"{table}.{column}": connection.exec_driver_sql(
                f"SELECT count(*) FROM {table} WHERE CAST(\"{column}\" AS text) LIKE '%%{value}%%'"
            ).scalar_one()
            for table, column in columns
        }
    return sorted(place for place, count in counts.items() if count and not place.startswith("prism_erasures."))


def bounded(world: World, name: str = "log.events", value: bytes = CANARY.encode()) -> list[str]:
    """The entries of the head's manifests, removed files included, with a value as a bound."""
    table = world.iceberg_table(name)
    head = table.current_snapshot()
    assert head is not None
    return [
        entry.status.name
        for manifest in head.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
        for bounds in (entry.data_file.lower_bounds, entry.data_file.upper_bounds)
        if value in (bounds or {}).values()
    ]


@pytest.mark.parametrize("parts", [[MAILS], [MAILS[:2], MAILS[2:]]])
def test_of_an_open_day_no_manifest_and_no_metrics_hold_an_erased_value(
    world: World, parts: Sequence[Sequence[str]]
) -> None:
    world.apply(text())
    arrive(world, parts)
    assert places_of(world)
    assert bounded(world)
    proved(world, f"email = '{CANARY}'", rows=1)
    assert (places_of(world), bounded(world)) == ([], [])


def test_nor_do_those_of_a_merged_day_and_of_the_small_objects_that_it_covers(world: World) -> None:
    world.apply(text())
    arrive(world, [MAILS[:2], MAILS[2:]])
    switched(world)
    assert places_of(world) == ["prism_merge_ranges.metrics", "prism_small_objects.metrics"]
    proved(world, f"email = '{CANARY}'", rows=1)
    assert (places_of(world), bounded(world)) == ([], [])
    assert world.iceberg_ids() == world.ids()


def test_nor_those_of_a_rebuilt_day(world: World) -> None:
    world.apply(text())
    arrive(world, [MAILS[:2], MAILS[2:]])
    switched(world)
    world.apply(text("{name: mark, type: bigint, value: '1'}"), now=NEXT_DAY)
    assert run_rebuild(world.context, "log.events", day=date(2026, 3, 1), now=utc(NEXT_DAY)).errors == ()
    proved(world, f"email = '{CANARY}'", rows=1)
    assert (places_of(world), bounded(world)) == ([], [])


def test_nor_does_a_join_table_hold_an_erased_key(world: World) -> None:
    world.apply(a_join_table(more="iceberg: true\n"))
    requests = Requests(world)
    requests.arrive([("front", front(key, NOON, "home")) for key in ("a", CANARY, "b")], NOON)
    requests.show(NOON)
    requests.arrive([("front", front(key, NOON, "cart", sent=9)) for key in ("a", CANARY)], NOON)
    requests.show(NOON)
    world.iceberg(NOON)
    assert "prism_record_objects.metrics" in places_of(world)
    proved(world, f"request_id = '{CANARY}'", "log.request", rows=3)
    assert places_of(world) == []
    assert (bounded(world, "log.request"), bounded(world, "log.request_changes")) == ([], [])


def test_nor_do_manifests_that_others_left_once_the_optimizer_wrote_them_again(world: World) -> None:
    world.apply(text())
    arrive(world, [MAILS[2:], MAILS[:1], MAILS[1:2]])
    world.catalog(NEXT_DAY)
    world.iceberg(NEXT_DAY)
    a_stranger(world, "delete")
    assert run_iceberg(world.context, now=utc(NEXT_DAY), ignore_pace=True).errors
    world.iceberg(NEXT_DAY)
    assert "DELETED" in bounded(world), "the library leaves the bounds of files that it removes"
    assert run_erase(world.context, "log.events", f"email = '{CANARY}'", rows=1).errors == ()
    for _ in range(3):
        statuses = go_on(world)
    assert [item.state for item in statuses] == ["waiting"]
    assert "prism iceberg optimize" in str(statuses[0].waits_for)
    world.iceberg(NEXT_DAY, optimize=True)
    assert [item.state for item in go_on(world)] == ["proved"]
    assert bounded(world) == []


def erased_from_a_merged_day(world: World) -> None:
    """Erases the canary from a merged day and publishes the day without it in all catalogs."""
    world.apply(text())
    arrive(world, [MAILS[:2], MAILS[2:]])
    switched(world)
    assert run_erase(world.context, "log.events", f"email = '{CANARY}'", rows=1).errors == ()
    world.catalog(NEXT_DAY)
    world.iceberg(NEXT_DAY)
    continue_erasures(world.context, forced=True)


def test_an_erasure_waits_for_manifests_with_bounds_of_objects_that_are_gone(world: World) -> None:
    """Nobody needs these manifests, but they are too young to be distinguished from those of a running commit."""
    erased_from_a_merged_day(world)
    hours_pass(world, 10)
    (status,) = continue_erasures(world.context, now=later(days=0.3), forced=True).erasures
    assert status.state == "waiting"
    assert status.waits_for
    assert "of its Iceberg table with bounds of objects that are gone" in status.waits_for
    assert "72 hours old" in status.waits_for
    (status,) = go_on(world)
    assert status.state == "proved"
    assert gc(world).deleted.objects == 0


def test_a_table_that_goes_on_taking_rows_in_is_proved(world: World) -> None:
    """Merged objects go at once while an erasure is open, and manifests with their bounds lie there for days."""
    erased_from_a_merged_day(world)
    hours_pass(world, 100)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_erasures SET published_time = published_time - interval '100 hours'")
    later_day, after_it = "2026-03-02T12:00", "2026-03-03T01:00"
    for mail in MAILS[:2]:
        (row,) = some_rows(1, utc(later_day))
        world.drop([row | {"email": mail}])
        world.stream(later_day)
        world.iceberg(later_day)
    world.catalog(after_it)
    world.merge(after_it, everything=True)
    world.catalog(after_it)
    world.catalog(after_it)
    world.iceberg(after_it)
    hours_pass(world, 10)
    (status,) = continue_erasures(world.context, now=later(days=0.3), forced=True).erasures
    assert (status.state, status.waits_for) == ("proved", None)
    assert (places_of(world), bounded(world)) == ([], [])
    assert keys(world, "-m0.avro"), "manifests of the later day are too young to be garbage"
