"""Repair: which objects are needed, how damage is found. Rows come back exactly as they were, or not at all.

Most of these days are open: their objects keep their keys. `test_repair_new_keys.py` is about the others.
"""

from __future__ import annotations

import dataclasses
import io
from typing import Any

import pyarrow.parquet as pq
import pytest

from prism_assets.domain.errors import StoreUnavailable
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.findings.registry import find_work
from prism_assets.stages.repair.report import RepairReport
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.parquet import read_parquet
from prism_assets_tests.stages.engines import FailingEngine, PausingEngine, PoisonedEngine, another_worker
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
AFTER = "2026-03-02T00:10"


@pytest.fixture
def events(world: World) -> World:
    world.apply(a_table())
    return world


def small_keys(world: World, part: str = "prism-") -> list[str]:
    keys = [item.key for item in world.context.stores.list("lake", "")]
    return sorted(key for key in keys if part in key and key.endswith(".parquet") and "part-" not in key)


def everything(world: World) -> dict[str, bytes]:
    return {item.key: world.context.stores.get("lake", item.key) for item in world.context.stores.list("lake", "")}


def lengths(world: World) -> list[int]:
    with world.context.database.begin() as connection:
        statement = "SELECT content_length FROM prism_small_objects ORDER BY prism_small_object_id"
        return list(connection.exec_driver_sql(statement).scalars())


def counts(report: RepairReport) -> tuple[int, int, int, int]:
    return report.checked, report.missing, report.damaged, report.repaired


def some_objects(world: World, count: int = 3) -> list[int]:
    """Streams objects of the day and returns the ids of their rows."""
    ids = []
    for _ in range(count):
        rows = some_rows(4, utc(NOON))
        ids += [row["id"] for row in rows]
        world.drop(rows)
    world.stream(NOON)
    return ids


def encoded_otherwise(body: bytes) -> bytes:
    """The same rows in the bytes of another version of the encoder."""
    target = io.BytesIO()
    pq.write_table(read_parquet(body), target, compression="none", use_dictionary=False)
    return target.getvalue()


def as_of_another_version(world: World) -> None:
    """All small objects, and their lengths on record, as if another version of the encoder had written them."""
    for number, key in enumerate(small_keys(world), start=1):
        body = encoded_otherwise(world.context.stores.get("lake", key))
        world.context.stores.put("lake", key, body)
        with world.context.database.begin() as connection:
            connection.exec_driver_sql(
                f"UPDATE prism_small_objects SET content_length = {len(body)} WHERE prism_staging_object_id = {number}"
            )


def test_nothing_is_done_where_all_is_well(events: World) -> None:
    some_objects(events)
    before = everything(events)
    for deep in (False, True):
        report = run_repair(events.context, deep=deep)
        assert (counts(report), report.partitions, report.errors) == ((3, 0, 0, 0), (), ())
    assert everything(events) == before


def test_a_missing_object_comes_back_byte_by_byte(events: World) -> None:
    ids = some_objects(events)
    events.catalog(NOON)
    before = everything(events)
    events.context.stores.delete("lake", small_keys(events)[:2])
    assert len(events.ids()) == 4
    report = run_repair(events.context, names=["log.events"], day=utc(NOON).date())
    assert (counts(report), report.errors) == ((3, 2, 0, 2), ())
    assert everything(events) == before
    assert events.ids() == ids
    assert counts(run_repair(events.context)) == (3, 0, 0, 0)


def test_an_object_of_another_length_is_replaced(events: World) -> None:
    some_objects(events)
    before = everything(events)
    events.context.stores.put("lake", small_keys(events)[1], b"torn")
    assert counts(run_repair(events.context)) == (3, 0, 1, 1)
    assert everything(events) == before


def test_damage_that_keeps_the_length_is_found_by_reading(events: World) -> None:
    some_objects(events)
    before = everything(events)
    key = small_keys(events)[0]
    events.context.stores.put("lake", key, b"\0" * len(before[key]))
    assert counts(run_repair(events.context)) == (3, 0, 0, 0)
    assert counts(run_repair(events.context, deep=True)) == (3, 0, 1, 1)
    assert everything(events) == before


def test_rows_that_are_not_the_committed_ones_are_found_by_reading(events: World) -> None:
    some_objects(events)
    before = everything(events)
    first, second, _ = small_keys(events)
    events.context.stores.put("lake", first, before[second])
    assert counts(run_repair(events.context, deep=True))[2:] == (1, 1)
    assert everything(events) == before


def test_a_dry_run_tells_and_writes_nothing(events: World) -> None:
    some_objects(events)
    first, second, _ = small_keys(events)
    length = len(events.context.stores.get("lake", second))
    events.context.stores.delete("lake", [first])
    events.context.stores.put("lake", second, b"\0" * length)
    before = everything(events)
    assert counts(run_repair(events.context, dry_run=True)) == (3, 1, 0, 0)
    assert counts(run_repair(events.context, dry_run=True, deep=True)) == (3, 1, 1, 0)
    assert everything(events) == before


def test_only_the_day_and_the_table_asked_for_are_repaired(events: World) -> None:
    events.apply(a_table("log.other"))
    events.drop([*some_rows(1, utc(NOON)), *some_rows(1, utc("2026-02-27T12:00"))])
    events.drop(some_rows(1, utc(NOON)), stream="other")
    events.stream(NOON)
    events.context.stores.delete("lake", small_keys(events))
    report = run_repair(events.context, names=["log.events"], day=utc(NOON).date())
    assert counts(report) == (1, 1, 0, 1)
    assert [key.split("/")[-2] for key in small_keys(events)] == [f"dt={DAY}"]
    assert counts(run_repair(events.context)) == (3, 2, 0, 2)


def test_a_late_object_comes_back_to_its_tier(events: World) -> None:
    some_objects(events)
    events.catalog(AFTER)
    events.drop(some_rows(2, utc(NOON)))
    events.stream(AFTER)
    events.catalog(AFTER)
    (key,) = small_keys(events, "/delayed/")
    body, ids = events.context.stores.get("lake", key), events.ids()
    events.context.stores.delete("lake", [key])
    assert counts(run_repair(events.context)) == (4, 1, 0, 1)
    (again,) = small_keys(events, "/delayed/")
    assert events.context.stores.get("lake", again) == body
    events.catalog(AFTER)
    assert events.ids() == ids


def test_an_object_is_converted_under_the_definition_of_its_first_time(events: World) -> None:
    rows = some_rows(3, utc(NOON), colour="red")
    events.drop(rows)
    events.stream(NOON)
    before = everything(events)
    events.apply(a_table(columns=["{name: colour, type: string, length: 20}"]))
    events.context.stores.delete("lake", small_keys(events))
    assert counts(run_repair(events.context)) == (1, 1, 0, 1)
    assert everything(events) == before


def test_merged_objects_of_a_switched_day_need_their_small_ones_no_more(events: World) -> None:
    ids = some_objects(events)
    events.catalog(AFTER)
    events.merge(AFTER)
    closed = small_keys(events)
    events.context.stores.delete("lake", closed[:1])
    assert counts(run_repair(events.context)) == (3, 1, 0, 1), "readers still have the manifest of before"
    events.catalog(AFTER)
    events.drop(some_rows(2, utc(NOON)))
    events.stream(AFTER)
    events.context.stores.delete("lake", small_keys(events))
    assert counts(run_repair(events.context)) == (1, 1, 0, 1), "what is above the ranges is needed"
    events.catalog(AFTER)
    assert set(ids) < set(events.ids())


def test_a_manifest_that_names_an_old_length_is_replaced_under_another_key(events: World) -> None:
    ids = some_objects(events)
    as_of_another_version(events)
    events.catalog(AFTER)
    manifest, old = events.partition(DAY).location, lengths(events)
    events.context.stores.delete("lake", small_keys(events)[:1])
    assert counts(run_repair(events.context)) == (3, 1, 0, 1)
    assert [before == now for before, now in zip(old, lengths(events), strict=True)] == [False, True, True]
    assert [(item.kind, str(item.date)) for item in find_work(events.context, "catalog", now=utc(AFTER))] == [
        ("publish", DAY)
    ]
    events.catalog(AFTER)
    assert events.partition(DAY).location == manifest.replace(".json", "-r1.json")
    assert [item.content_length for item in events.partition(DAY).objects] == lengths(events)
    assert events.ids() == ids
    assert not events.catalog(AFTER).changed
    assert counts(run_repair(events.context, deep=True)) == (3, 0, 0, 0)


def test_a_day_is_merged_and_switched_after_its_lengths_were_set_anew(events: World) -> None:
    ids = some_objects(events)
    as_of_another_version(events)
    events.catalog(AFTER)
    events.context.stores.delete("lake", small_keys(events))
    assert counts(run_repair(events.context))[3] == 3
    events.merge(AFTER)
    events.catalog(AFTER)
    events.catalog(AFTER)
    assert events.status(DAY, AFTER).state == "switched"
    assert events.ids() == ids
    assert not events.catalog(AFTER).changed


def test_an_open_day_is_not_published_again_for_a_length(events: World) -> None:
    ids = some_objects(events)
    as_of_another_version(events)
    events.catalog(NOON)
    events.context.stores.delete("lake", small_keys(events))
    assert counts(run_repair(events.context)) == (3, 3, 0, 3)
    assert not events.catalog(NOON).changed
    assert events.ids() == ids


def test_a_sound_object_with_another_length_is_kept_and_its_length_recorded(events: World) -> None:
    """A death between the write and its record leaves such an object. The staging object may be gone by then."""
    some_objects(events)
    key = small_keys(events)[0]
    events.context.stores.put("lake", key, encoded_otherwise(events.context.stores.get("lake", key)))
    before = everything(events)
    events.context.stores.delete("staging", [item.key for item in events.context.stores.list("staging", "")])
    assert counts(run_repair(events.context)) == (3, 0, 1, 1)
    assert everything(events) == before
    assert lengths(events)[0] == len(before[key])
    assert counts(run_repair(events.context)) == (3, 0, 0, 0)


def test_a_staging_object_that_is_gone_fails_its_objects_and_no_others(events: World) -> None:
    first = events.drop([*some_rows(1, utc(NOON)), *some_rows(1, utc("2026-02-27T12:00"))])
    events.drop(some_rows(1, utc(NOON)))
    events.stream(NOON)
    keys = small_keys(events)
    events.context.stores.delete("lake", keys)
    events.context.stores.delete("staging", [first])
    report = run_repair(events.context)
    assert counts(report) == (3, 3, 0, 1)
    assert [item.transient for item in report.irreparable] == [False, False]
    assert sorted({str(item.date) for item in report.irreparable}) == ["2026-02-27", DAY]
    assert all(f"its staging object s3://staging/{first} is gone" in line for line in report.errors)


def test_a_staging_object_that_was_replaced_is_not_used(events: World) -> None:
    key = events.drop(some_rows(2, utc(NOON)))
    events.stream(NOON)
    (small,) = small_keys(events)
    events.context.stores.put("lake", small, b"torn")
    events.context.stores.put("staging", key, zipped(as_lines(some_rows(2, utc(NOON)))))
    report = run_repair(events.context)
    assert counts(report) == (1, 0, 1, 0)
    assert "is no longer the one it was made of" in report.errors[0]
    assert events.context.stores.get("lake", small) == b"torn"


@pytest.mark.parametrize("rows", [2, 3])
def test_other_rows_are_never_written_over_what_is_there(events: World, rows: int) -> None:
    """The staging object has no etag on record. Its content has changed, its length has not."""
    key = events.drop([], body=as_lines(some_rows(2, utc(NOON))))
    events.stream(NOON)
    body = events.context.stores.get("staging", key)
    others = as_lines(some_rows(rows, utc(NOON)))
    events.context.stores.put("staging", key, others[: len(body)].ljust(len(body)))
    with events.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET etag = NULL")
    (small,) = small_keys(events)
    events.context.stores.delete("lake", [small])
    report = run_repair(events.context)
    assert "not the same as the 2 that were committed; nothing was written" in report.errors[0]
    assert small_keys(events) == []


def test_an_outage_is_told_as_one_and_the_next_repair_succeeds(events: World) -> None:
    some_objects(events)
    events.context.stores.delete("lake", small_keys(events))
    worker = another_worker(events, FailingEngine(events.context.engine, times=3))
    report = run_repair(worker.context)
    assert [item.transient for item in report.irreparable] == [True] * 3
    assert counts(run_repair(worker.context))[:2] == (3, 0)


def test_a_poisonous_staging_object_ends_up_alone(events: World) -> None:
    keys = [events.drop(some_rows(1, utc(NOON))) for _ in range(5)]
    events.stream(NOON)
    events.context.stores.delete("lake", small_keys(events))
    report = run_repair(another_worker(events, PoisonedEngine(events.context.engine, keys[2])).context)
    assert counts(report) == (5, 5, 0, 4)
    assert "the worker was killed" in report.errors[0]


def test_a_second_repair_of_the_same_day_skips_it(events: World) -> None:
    some_objects(events)
    events.context.stores.delete("lake", small_keys(events))
    found: list[RepairReport] = []
    engine = PausingEngine(events.context.engine, lambda: found.append(run_repair(events.context)))
    assert counts(run_repair(another_worker(events, engine).context)) == (3, 3, 0, 3)
    (second,) = found
    assert [item.skipped for item in second.partitions] == [True]
    assert f"log.events {DAY}: another repair is working on it (another, since " in second.errors[0]
    assert counts(second) == (0, 0, 0, 0)
    assert counts(run_repair(events.context)) == (3, 0, 0, 0), "the lock is free again"


def test_a_merge_whose_input_was_missing_succeeds_after_the_repair(events: World) -> None:
    ids = some_objects(events)
    events.catalog(AFTER)
    events.context.stores.delete("lake", small_keys(events)[:1])
    assert run_catalog(events.context, now=utc(AFTER)).errors == ()
    assert events.merge(AFTER).errors != ()
    run_repair(events.context)
    assert events.merge(AFTER, everything=True).errors == ()
    events.catalog(AFTER)
    assert events.ids() == ids


def test_a_store_that_does_not_answer_stops_the_repair_at_once(events: World) -> None:
    some_objects(events)
    config = dataclasses.replace(
        events.context.stores.config, local_root=None, endpoint="http://127.0.0.1:9", retry_seconds=0.1
    )
    stores: Any = type(events.context.stores)(config)
    with pytest.raises(StoreUnavailable):
        run_repair(dataclasses.replace(events.context, stores=stores))


def test_every_day_of_one_staging_object_is_repaired_by_one_conversion(events: World) -> None:
    events.drop([row for day in (25, 26, 27) for row in some_rows(2, utc(f"2026-02-{day}T12:00"))])
    events.stream(NOON)
    before = everything(events)
    events.context.stores.delete("lake", small_keys(events))
    engine = PoisonedEngine(events.context.engine, "nothing")
    assert counts(run_repair(another_worker(events, engine).context)) == (3, 3, 0, 3)
    assert engine.jobs == [1]
    assert everything(events) == before


def test_the_encoder_of_these_tests_changes_bytes_and_no_rows(events: World) -> None:
    some_objects(events, count=1)
    body = events.context.stores.get("lake", small_keys(events)[0])
    other = encoded_otherwise(body)
    assert len(other) != len(body)
    assert read_parquet(other).equals(read_parquet(body))
