"""Folds with unreadable inputs: a fault of one object delays no other object, and stays visible."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from prism_assets import failpoints
from prism_assets.kernels.unread import reading
from prism_assets.metadata.records import watermark
from prism_assets.metadata.tables import tables
from prism_assets.stages.checks.joins import CHANGES_BALANCE, PENDING_AGE
from prism_assets.stages.checks.run import run_checks
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.findings.records import RECORDS, RECORDS_WAIT
from prism_assets.stages.findings.registry import read_findings
from prism_assets.stages.fold.plan import plan_fold
from prism_assets.stages.fold.report import FoldReport
from prism_assets.stages.fold.run import run_fold
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import utc
from prism_assets_tests.requests import Requests, a_join_table, back, front
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
LATER = f"{DAY}T13:40"


@pytest.fixture
def requests(world: World) -> Requests:
    world.apply(a_join_table(buckets=64))
    return Requests(world)


def objects(world: World, part: str) -> set[Path]:
    return {path for path in (world.root / "buckets" / "lake").rglob("*.parquet") if part in str(path)}


def balances(world: World) -> bool:
    (outcome,) = run_checks(world.context, [CHANGES_BALANCE], names=["log.request"], limits={}, now=utc(NOON))
    return outcome.passed


def waits(world: World, now: str) -> str | None:
    (outcome,) = run_checks(world.context, [RECORDS_WAIT], names=["log.request"], limits={}, now=utc(now))
    return None if outcome.passed else outcome.sentence


def is_told_as_waiting(world: World) -> bool:
    """Years later, as objects have the time of PostgreSQL."""
    years_later = utc("2046-01-01T00:00")
    (outcome,) = run_checks(world.context, [PENDING_AGE], names=["log.request"], limits={}, now=years_later)
    return "no fold has taken it" in outcome.sentence


def fold(world: World, now: str = NOON) -> FoldReport:
    return run_fold(world.context, now=utc(now), ignore_pace=True)


@pytest.mark.parametrize("body", [None, b"PAR1 no more"], ids=["missing", "damaged"])
def test_changes_that_cannot_be_read_are_set_aside_until_a_repair(requests: Requests, body: bytes | None) -> None:
    world = requests.world
    requests.arrive([("front", front("a", NOON, "home"))], NOON)
    (lost,) = objects(world, "request_changes")
    requests.arrive([("back", back("a", NOON, 1, 200)), ("back", back("b", NOON, 1, 404))], NOON)
    lost.unlink() if body is None else lost.write_bytes(body)
    for _ in range(2):
        report = fold(world)
        (error,) = report.errors
        assert error.startswith("log.request: 1 object of changes cannot be read and is set aside, the first since")
    assert any(error.removeprefix("log.request: ") == finding.text for finding in run_doctor(world.context).findings)
    assert error in set(map(str, read_findings(world.context, None, [RECORDS], now=utc(NOON))))
    assert waits(world, NOON) == error.removeprefix("log.request: ")
    world.catalog(NOON)
    assert [(row[0], row[3], row[5]) for row in requests.seen()] == [("a", None, 200), ("b", None, 404)]
    assert balances(world)
    assert is_told_as_waiting(world)
    world.discover(LATER)
    assert fold(world, LATER).folds == ()
    with world.context.database.begin() as connection:
        clock, settles = watermark.load(connection, 1), watermark.settle_before(connection, 1)
    assert clock == utc(f"{DAY}T13:35")
    assert settles == utc(f"{DAY}T11:55")  # by which the changes were accepted
    assert run_repair(world.context, deep=True).repaired == 1
    assert requests.show(LATER) == requests.wanted()
    assert [row[3] for row in requests.seen()] == ["home", None]
    assert read_findings(world.context, None, [RECORDS], now=utc(LATER)) == ()
    assert waits(world, LATER) is None
    assert balances(world)
    assert not is_told_as_waiting(world)


def test_objects_that_are_mended_are_taken_no_more_at_once_than_a_fold_takes(requests: Requests) -> None:
    world = requests.world
    for name in "abc":
        requests.arrive([("front", front(name, NOON, "home"))], NOON)
    bodies = {path: path.read_bytes() for path in objects(world, "request_changes")}
    for path in bodies:
        path.unlink()
    assert len(fold(world).errors) == 1
    for path, body in bodies.items():
        path.write_bytes(body)
    assert run_repair(world.context, deep=True).repaired == 0
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_set_aside_changes SET retry_time = clock_timestamp()")
    world.context = replace(world.context, settings=world.settings.model_copy(update={"fold_max_objects": 2}))
    assert [done.counts.changes_in for done in fold(world).folds] == [2, 1]
    world.catalog(NOON)
    assert [row[0] for row in requests.seen()] == ["a", "b", "c"]


@pytest.mark.parametrize("error", [MemoryError, pa.ArrowMemoryError], ids=["Python", "Arrow"])
def test_a_worker_without_memory_finds_no_fault_with_an_object(requests: Requests, error: type[MemoryError]) -> None:
    requests.arrive([("front", front("a", NOON, "home"))], NOON)
    with requests.world.context.database.begin() as connection:
        table, changes = tables.load_join(connection, requests.table.table_id)
        plan = plan_fold(
            connection, table, changes, requests.world.context.lake, now=utc(NOON), most_objects=9, most_bytes=9_000
        )
    with pytest.raises(error), reading(plan.changes[0]):
        raise error


def test_a_bucket_with_an_object_that_cannot_be_read_waits_and_the_others_are_folded(requests: Requests) -> None:
    world = requests.world
    requests.arrive([("front", front("a", NOON, "home"))], NOON)
    requests.fold(NOON)
    damaged = {path: path.read_bytes() for path in objects(world, "/records/")}
    requests.arrive([("front", front("d", NOON, "home"))], NOON)
    requests.fold(NOON)
    for path in damaged:
        path.write_bytes(b"PAR1 no more")
    for number in range(2):
        before = objects(world, "/pending/")
        requests.arrive([("back", back(request, NOON, number, 200)) for request in ("a", "d")], NOON)
        report = fold(world)
        (done,) = report.folds
        assert (done.counts.changes_in, done.counts.changes_folded, done.pending) == (2, 1, number + 1)
        (error,) = report.errors
        assert error.startswith("log.request: 1 object of folds cannot be read, one of them as ")
        assert "changes wait in 1 bucket" in error
        assert balances(world)
        (waiting,) = objects(world, "/pending/") - before
        damaged[waiting] = waiting.read_bytes()
        waiting.unlink()
    for path, body in damaged.items():
        path.write_bytes(body)
    requests.arrive([("back", back("d", NOON, 4, 500))], NOON)
    assert requests.show(NOON) == requests.wanted()
    assert [(row[0], row[4]) for row in requests.seen()] == [("a", 1), ("d", 4)]


def test_sums_count_each_change_once_whatever_becomes_of_a_fold(world: World) -> None:
    """An error before, in or behind the commit leaves no change out, and none is counted twice."""
    world.apply(a_join_table().replace("type: bigint, group: back", "type: bigint, group: front, merge: sum"))
    requests = Requests(world)
    for number, point in enumerate(("fold.after_execute", "fold.in_commit", "fold.after_commit")):
        requests.arrive([("front", front("a", NOON, str(number)) | {"status": 10**number})], NOON)
        failpoints.configure({"PRISM_FAILPOINTS": f"{point}=raise(StoreUnavailable)"})
        try:
            assert fold(world).errors
        finally:
            failpoints.configure({})
        assert requests.show(NOON) == requests.wanted()
    assert [row[5] for row in requests.seen()] == [111]


def test_an_object_that_settles_in_the_fold_that_can_read_it_again_is_sound(requests: Requests) -> None:
    world = requests.world
    requests.arrive([("front", front("a", NOON, "home"))], NOON)
    requests.fold(NOON)
    (damaged,) = objects(world, "/records/")
    body = damaged.read_bytes()
    damaged.write_bytes(b"PAR1 no more")
    requests.arrive([("front", front("b", f"{DAY}T12:40", "home"))], NOON)
    assert len(fold(world).errors) == 1
    damaged.write_bytes(body)
    world.discover(f"{DAY}T20:00")
    assert fold(world, f"{DAY}T20:00").errors == ()
    assert waits(world, f"{DAY}T20:00") is None
