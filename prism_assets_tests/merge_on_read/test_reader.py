"""Join tables as seen by readers that wait for no fold: from lines in staging, with PostgreSQL and Glue."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from prism_assets import failpoints
from prism_assets.domain.errors import MissingSecret, PrismError, StoreUnavailable, WrongUse
from prism_assets.merge_on_read.reader import RecordsReader
from prism_assets.merge_on_read.snapshot import RecordsSnapshot
from prism_assets.reading.query import run_query
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.fold.run import run_fold
from prism_assets_tests.builders import a_table, utc
from prism_assets_tests.requests import Requests, a_join_table, back, front, some_changes
from prism_assets_tests.stages.aging import gc, hours_pass
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
DAYS = (("a", DAY), ("b", "2026-03-02"))


@pytest.fixture
def requests(world: World) -> Requests:
    world.apply(a_join_table(dirty=0.9))
    world.catalog(NOON)
    return Requests(world)


@pytest.fixture
def reader(world: World) -> Iterator[RecordsReader]:
    with RecordsReader(world.settings) as made:
        yield made


def current(reader: RecordsReader, requests: Requests) -> list[tuple[Any, ...]]:
    names = ", ".join(column.name for column in requests.table.columns)
    return sorted(run_query(reader, f"SELECT {names} FROM log.request").rows, key=str)


def test_changes_are_readable_before_any_fold(requests: Requests, reader: RecordsReader) -> None:
    requests.arrive([("front", front("a", NOON, "home")), ("back", back("a", f"{DAY}T12:00:02", 1, 200))], NOON)
    assert [(row[0], row[3], row[5]) for row in current(reader, requests)] == [("a", "home", 200)]
    assert requests.seen() == []


def test_records_are_those_of_the_model_whatever_is_folded_published_or_waits(
    world: World, reader: RecordsReader
) -> None:
    world.apply(a_join_table(dirty=0.95, buckets=1))
    requests = Requests(world)
    changes = some_changes(4, 60, f"{DAY}T21:00", requests=15, hours=6)
    waited = 0
    for number, start in enumerate(range(0, len(changes), 20)):
        requests.arrive(changes[start : start + 20], f"{DAY}T21:00")
        world.catalog(f"{DAY}T21:00")  # shows the log, by which the model goes
        assert current(reader, requests) == requests.wanted()
        if number < 2:
            waited += sum(fold.pending for fold in requests.fold(f"{DAY}T21:00").folds)
            assert current(reader, requests) == requests.wanted()
    assert waited


def test_rows_are_those_of_glue_once_all_is_folded_and_shown(requests: Requests, reader: RecordsReader) -> None:
    requests.arrive(some_changes(1, 30, f"{DAY}T22:00", requests=9, hours=3), NOON)
    requests.show(NOON)
    sql = "SELECT * FROM log.request ORDER BY ALL"
    now, published = run_query(reader, sql), run_query(requests.world.reader(), sql)
    requests.arrive(some_changes(2, 30, f"{DAY}T22:00", requests=9, hours=3), NOON)
    assert run_query(reader, sql).columns == now.columns == published.columns
    assert now.rows == published.rows
    assert run_query(reader, sql).rows != now.rows
    assert reader.rows("log.request").schema.field("dt").type == "date32"


def test_a_bridged_record_shows_once_under_the_earlier_day(world: World, reader: RecordsReader) -> None:
    world.apply(a_join_table(lateness="6h"))
    requests = Requests(world)
    now = "2026-03-02T00:40"
    pages = [front("a", f"{DAY}T23:20", "home"), front("a", "2026-03-02T00:30", "cart")]
    requests.arrive([("front", page) for page in pages], now)
    requests.show(now)
    requests.arrive([("back", back("a", f"{DAY}T23:55", 1, 200))], now)
    assert run_query(reader, "SELECT dt, page FROM log.request").rows == ((date(2026, 3, 1), "cart"),)
    assert run_query(reader, "SELECT page FROM log.request WHERE dt = '2026-03-02'").rows == ()


def test_a_record_that_went_stays_gone_and_what_is_due_goes_with_a_fold(world: World, reader: RecordsReader) -> None:
    world.apply(a_join_table(after="delete"))
    requests = Requests(world)
    requests.arrive([("front", front("a", NOON, "home"))], NOON)
    requests.show(NOON)
    world.discover(f"{DAY}T13:36")
    assert len(current(reader, requests)) == 1
    requests.fold(f"{DAY}T13:36")
    assert current(reader, requests) == []


def test_days_that_expired_are_shown_no_more(requests: Requests, reader: RecordsReader) -> None:
    requests.arrive([("front", front(name, f"{day}T12:00", "home")) for name, day in DAYS], NOON)
    requests.show(NOON)
    with requests.world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_partitions SET expire_time = now() WHERE switched AND partition_date = '2026-03-01'"
        )
    requests.arrive([("back", back(name, f"{day}T12:00", 1, 200)) for name, day in (("b", "2026-03-02"),)], NOON)
    assert [(row[0], row[5]) for row in current(reader, requests)] == [("b", 200)]


def test_what_is_being_erased_is_left_out_of_records_and_of_changes(requests: Requests, reader: RecordsReader) -> None:
    world = requests.world
    requests.arrive([("front", front(name, NOON, "home")) for name in ("gone", "stays")], NOON)
    requests.show(NOON)
    requests.arrive([("back", back("gone", NOON, 1, 200))], NOON)
    failpoints.configure({"PRISM_FAILPOINTS": "erase.after_rule=raise(StoreUnavailable)"})
    try:
        with pytest.raises(StoreUnavailable):
            run_erase(world.context, "log.request", "request_id = 'gone'", rows=3)
    finally:
        failpoints.configure({})
    assert [row[0] for row in current(reader, requests)] == ["stays"]
    assert [row[0] for row in requests.seen()] == ["gone", "stays"]


def objects(world: World, part: str) -> list[Path]:
    return sorted(path for path in (world.root / "buckets" / "lake").rglob("*.parquet") if part in str(path))


def test_an_object_that_cannot_be_read_is_named_with_what_to_do(requests: Requests, reader: RecordsReader) -> None:
    world = requests.world
    requests.arrive([("front", front("a", NOON, "home"))], NOON)
    requests.show(NOON)
    (stored,) = objects(world, "/records/")
    requests.arrive([("back", back("a", NOON, 1, 200))], NOON)
    whole = stored.read_bytes()
    stored.unlink()
    mend = "does not exist; `prism rebuild log.request` makes it again"
    with pytest.raises(PrismError, match=rf"{stored.name}.* {mend}, .*--published"):
        reader.rows("log.request")
    stored.write_bytes(whole)
    change = objects(world, "request_changes")[-1]
    change.write_bytes(b"PAR1 no more")
    with pytest.raises(PrismError, match=rf"{change.name}.*`prism repair --deep`.*--published"):
        reader.rows("log.request")


def test_changes_that_are_set_aside_are_left_out_until_they_can_be_read(
    requests: Requests, reader: RecordsReader
) -> None:
    world = requests.world
    requests.arrive([("front", front("a", NOON, "home")), ("back", back("b", NOON, 1, 404))], NOON)
    lost = next(path for path in objects(world, "request_changes") if b"home" in path.read_bytes())
    body = lost.read_bytes()
    lost.unlink()
    assert run_fold(world.context, now=utc(NOON), ignore_pace=True).errors
    assert [row[0] for row in current(reader, requests)] == ["b"]
    lost.write_bytes(body)
    assert [row[0] for row in current(reader, requests)] == ["a", "b"]


def test_a_reader_that_is_overtaken_by_a_fold_and_a_collection_begins_anew(requests: Requests) -> None:
    world = requests.world
    requests.arrive([("front", front("a", NOON, "home"))], NOON)
    requests.show(NOON)
    requests.arrive([("back", back("a", NOON, 1, 200))], NOON)
    snapshots = []

    class Overtaken(RecordsReader):
        """Reads years after its first snapshot."""

        def dataset_of(self, snapshot: RecordsSnapshot, left_out: Collection[int] = ()) -> ds.Dataset:
            snapshots.append(snapshot)
            if len(snapshots) == 1:
                requests.show(NOON)
                hours_pass(world, 100)
                with world.context.database.begin() as connection:
                    connection.exec_driver_sql(
                        "UPDATE prism_rewrites SET finish_time = finish_time - interval '100 hours'"
                    )
                gc(world)
            return super().dataset_of(snapshot, left_out)

    with Overtaken(world.settings) as reader:
        assert [(row[0], row[3], row[5]) for row in current(reader, requests)] == [("a", "home", 200)]
    assert len(snapshots) == 2


def test_a_reader_from_before_an_erasure_reads_what_was_there_and_the_next_reader_what_is_left(
    requests: Requests,
) -> None:
    world = requests.world
    requests.arrive([("back", back(name, NOON, 1)) for name in ("gone", *(f"r{n}" for n in range(20)))], NOON)
    snapshots = []

    class Overtaken(RecordsReader):
        """Begins an erasure after its first snapshot."""

        def dataset_of(self, snapshot: RecordsSnapshot, left_out: Collection[int] = ()) -> ds.Dataset:
            snapshots.append(snapshot)
            if len(snapshots) == 1:
                run_erase(world.context, "log.request", "request_id = 'gone'")
            return super().dataset_of(snapshot, left_out)

    left = {f"r{n}" for n in range(20)}
    with Overtaken(world.settings) as reader:
        assert {row[0] for row in current(reader, requests)} == {"gone", *left}
        assert {row[0] for row in current(reader, requests)} == left
    assert len(snapshots) == 2


def test_readers_need_the_secret_of_an_erasure_until_all_is_searched_for_it(
    requests: Requests, reader: RecordsReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = requests.world
    requests.arrive([("back", back(f"r{n}", NOON, 1)) for n in range(20)], NOON)
    requests.show(NOON)
    requests.arrive([("back", back("r1", NOON, 2, 200))], NOON)
    monkeypatch.setenv("PRISM_SECRET_MAIL", "x" * 40)
    failpoints.configure({"PRISM_FAILPOINTS": "erase.after_rule=raise(StoreUnavailable)"})
    try:
        with pytest.raises(StoreUnavailable):
            run_erase(world.context, "log.request", "request_id = pseudonym('a@b', 'mail')")
    finally:
        failpoints.configure({})
    monkeypatch.delenv("PRISM_SECRET_MAIL")
    with pytest.raises(
        MissingSecret, match=r"an erasure of log.request is in progress.*PRISM_SECRET_MAIL.*--published"
    ):
        reader.rows("log.request")
    monkeypatch.setenv("PRISM_SECRET_MAIL", "x" * 40)
    continue_erasures(world.context, forced=True)
    monkeypatch.delenv("PRISM_SECRET_MAIL")
    assert reader.rows("log.request").num_rows == 20


def test_only_join_tables_are_read(world: World, reader: RecordsReader) -> None:
    world.apply(a_table(), a_join_table())
    for name in ("log.events", "log.request_changes", "log.none"):
        with pytest.raises(WrongUse, match=name):
            reader.dataset(name)
