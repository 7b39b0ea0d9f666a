"""`prism erase` of a join table: a key leaves the log of changes and all records made by folds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow.parquet as pq
import pytest

from prism_assets import failpoints
from prism_assets.domain.errors import PrismError, WrongUse
from prism_assets.domain.records.folding import RecordPart
from prism_assets.metadata.records import record_objects
from prism_assets.stages.checks.joins import CHANGES_BALANCE
from prism_assets.stages.checks.run import run_checks
from prism_assets.stages.close_open_days import close_open_days
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase import records as record_erasure
from prism_assets.stages.erase.plan import erased_together, plan_erasure
from prism_assets.stages.erase.report import ErasureReport, ErasureStatus, read_erasures
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.findings.erasures import ERASURES_PROVED
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.run import run_until_idle
from prism_assets_tests.builders import utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.requests import Requests, a_join_table, back, front, some_changes
from prism_assets_tests.stages.aging import keys
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
ONE = "2026-03-01T13:00"
NEXT_DAY = "2026-03-02T12:00"
WHERE = "request_id = 'gone'"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0, quarantine_days=3_650) as made:
        yield made


@pytest.fixture
def requests(world: World) -> Requests:
    world.apply(a_join_table(dirty=0.9))
    return Requests(world)


def erase(requests: Requests, where: str = WHERE, name: str = "log.request", **more: Any) -> tuple[ErasureStatus, ...]:
    report = run_erase(requests.world.context, name, where, **more)
    assert report.errors == ()
    return report.erasures


def close_early(requests: Requests, now: str = NOON) -> None:
    """`prism erase log.request --close-open-days`: the log lists changes of open days until then."""
    assert close_open_days(requests.world.context, ["log.request"], clock=lambda: utc(now)).errors == ()


def prove(requests: Requests, now: str = ONE) -> ErasureReport:
    """Publishes, and goes on as if the reader lease were over."""
    requests.world.catalog(now)
    requests.world.catalog(now)
    continue_erasures(requests.world.context, forced=True)
    report = continue_erasures(requests.world.context, now=datetime.now(timezone.utc) + timedelta(days=10), forced=True)
    assert report.errors == ()
    return report


def holding(world: World, key: str = "gone") -> list[str]:
    """Returns the folders of the lake with objects that contain the key, read from the store."""
    root = world.root / "buckets" / "lake"
    found = [
        name
        for name in keys(world)
        if name.endswith(".parquet") and key in pq.read_table(root / name, columns=["request_id"])[0].to_pylist()
    ]
    return sorted({name.split("/")[1] for name in found})


def passes(world: World, *names: str) -> bool:
    found = run_checks(world.context, names, names=["log.request"], limits={}, now=utc(NEXT_DAY))
    return all(outcome.passed for outcome in found)


def everywhere(requests: Requests) -> None:
    """Puts a key into settled, open and hidden records, pending changes, and changes no fold has taken."""
    others = [("back", back(f"r{number}", NOON, 1, number)) for number in range(12)]
    requests.arrive([("back", back("gone", NOON, 1, 7)), *others], NOON)
    requests.show("2026-03-01T12:01")
    requests.arrive([("front", front("later", "2026-03-02T11:00"))], "2026-03-02T11:30")  # moves the watermark
    requests.show("2026-03-02T11:31")
    assert requests.world.merge("2026-03-02T11:31").merged  # settled records of all buckets
    requests.world.catalog("2026-03-02T11:31")
    more = [("back", back(f"n{number}", "2026-03-02T11:30", 1, number)) for number in range(12)]
    requests.arrive([("back", back("gone", "2026-03-02T11:31", 1)), *more], "2026-03-02T11:40")
    requests.show("2026-03-02T11:41")
    requests.arrive([("front", front("gone", "2026-03-02T11:32", "home"))], "2026-03-02T11:42")
    requests.show("2026-03-02T11:43")
    requests.arrive([("front", front("gone", "2026-03-02T11:33", "cart"))], "2026-03-02T11:44")


def parts(world: World) -> set[tuple[str, bool]]:
    with world.context.database.begin() as connection:
        rows = connection.exec_driver_sql("SELECT part, is_settled FROM prism_record_objects WHERE replaced_by IS NULL")
        return {tuple(row) for row in rows}


def test_a_key_leaves_the_log_and_its_records_wherever_they_are(requests: Requests) -> None:
    world = requests.world
    everywhere(requests)
    assert {("visible", True), ("visible", False), ("pending", False)} <= parts(world)
    assert set(holding(world)) >= {"live", "records", "pending"}
    left = [row for row in requests.seen() if row[0] != "gone"]
    assert len(left) + 2 == len(requests.seen())

    records, changes = erase(requests, rows=6)
    assert (records.table, records.state, records.rows_erased) == ("log.request", "publishing", 2)
    assert (changes.table, changes.rows_erased, changes.open_rows) == ("log.request_changes", 1, 3)
    close_early(requests, "2026-03-02T12:09")
    world.catalog("2026-03-02T12:10")
    assert requests.show("2026-03-02T12:10") == left == requests.wanted()
    assert [item.state for item in prove(requests, "2026-03-02T12:11").erasures] == ["proved", "proved"]
    assert holding(world) == []
    assert passes(world, CHANGES_BALANCE, ERASURES_PROVED)
    assert requests.seen() == left
    assert run_doctor(world.context, deep=True, now=utc("2026-03-02T12:11")).findings == ()

    requests.arrive(
        [("back", back("gone", "2026-03-02T11:50", 9)), ("back", back("new", "2026-03-02T11:51", 1))], NEXT_DAY
    )
    seen = requests.show("2026-03-02T12:12")
    assert {row[0] for row in seen} == {row[0] for row in left} | {"new"}
    assert seen == requests.wanted()
    assert holding(world) == []
    assert not run_erase(world.context, "log.request_changes", WHERE).changed
    assert not run_until_idle(world.context, clock=lambda: utc(NEXT_DAY))[-1].changed
    assert passes(world, CHANGES_BALANCE, ERASURES_PROVED)


def test_other_records_are_as_if_the_changes_of_the_key_had_never_come(requests: Requests) -> None:
    changes = some_changes(5, 80, NOON, requests=8, hours=3)
    requests.arrive(changes[:30], NOON)
    requests.show(NOON)
    requests.arrive(changes[30:50], NOON)
    where = "request_id IN ('r1', 'r4')"
    plan = plan_erasure(requests.world.context, "log.request", where)
    erase(requests, where, rows=plan.all_matching)
    close_early(requests)
    requests.arrive(changes[50:], NOON)
    assert requests.show(NOON) == requests.wanted()
    assert {row[0] for row in requests.seen()}.isdisjoint({"r1", "r4"})
    assert len(requests.seen()) > 4
    assert passes(requests.world, CHANGES_BALANCE)


def test_a_hidden_record_goes_with_its_delete_and_nothing_of_it_comes_back(requests: Requests) -> None:
    deleted = back("gone", NOON, 5, op="D")
    requests.arrive([("back", deleted), *(("back", back(f"r{number}", NOON, 1)) for number in range(20))], NOON)
    before = requests.show(NOON)
    assert ("hidden", False) in parts(requests.world)
    assert erase(requests, name="log.request_changes")[0].rows_erased == 1
    requests.arrive([("back", back("gone", NOON, 4))], NOON)
    assert requests.show(NOON) == before
    assert ("hidden", False) not in parts(requests.world)
    context = requests.world.context
    assert len(read_erasures(context, erased_together(context, ["log.request"]))) == 2
    close_early(requests)
    prove(requests)
    assert holding(requests.world) == []


@pytest.mark.parametrize(
    ("where", "told"),
    [
        (
            "page = 'home'",
            "names page, and records of log.request are erased as a whole, by columns of their key alone",
        ),
        ("request_id = 'a' AND _p_group = 'back'", "names _p_group"),
        ("1 = 1", "names no column"),
        ("request_id <> ''", r"it matches every one of the 4 rows of the table, of records and of changes"),
        ("CAST(request_id AS INTEGER) = 1", "fails on 4 rows"),
    ],
)
def test_what_would_take_a_part_of_a_record_or_all_of_them_is_refused(
    requests: Requests, where: str, told: str
) -> None:
    requests.arrive([("front", front("a", NOON, "home")), ("front", front("b", NOON, "home"))], NOON)
    requests.show(NOON)
    for name in ("log.request", "log.request_changes"):
        with pytest.raises(WrongUse, match=told):
            run_erase(requests.world.context, name, where)
    assert len(requests.seen()) == 2


def test_a_plan_counts_records_and_changes_and_all_of_them_go_where_their_number_is_typed(requests: Requests) -> None:
    requests.arrive(
        [("front", front("a", NOON, "x")), ("back", back("a", NOON, 1)), ("back", back("b", NOON, 1))], NOON
    )
    requests.show(NOON)
    where = "request_id < 'z'"
    plan = plan_erasure(requests.world.context, "log.request", where)
    assert plan.sentences == (
        "log.request 2026-03-01: 2 rows",
        "log.request: 2 of 2 rows match on 1 day; 2 of 2 objects are to be rewritten, 0.0 MB",
        "log.request_changes 2026-03-01: 3 rows, erased after the day closes, at 2026-03-02 00:00Z or later",
        "log.request_changes: 3 of 3 rows match on 1 day; 2 of 2 objects are to be rewritten, 0.0 MB",
    )
    assert [(status.rows_erased, status.open_rows) for status in erase(requests, where, rows=5)] == [(2, 0), (0, 3)]
    close_early(requests)
    prove(requests)
    assert requests.seen() == []
    assert [name for name in keys(requests.world) if "records/" in name] == []


@pytest.mark.parametrize("settling", [False, True], ids=["open", "settling"])
@pytest.mark.parametrize("at_once", [False, True], ids=["rule", "erasure"])
def test_a_fold_that_began_before_the_rule_brings_nothing_back(
    requests: Requests, monkeypatch: pytest.MonkeyPatch, at_once: bool, settling: bool
) -> None:
    """The rule is made, or the erasure runs, after the fold has read all its inputs."""
    requests.arrive([("back", back("gone", NOON, 1)), *(("back", back(f"r{n}", NOON, 1)) for n in range(20))], NOON)
    now = "2026-03-01T20:00" if settling else NOON
    requests.world.discover(now)
    run = requests.world.context.engine.run

    def with_a_rule(tasks: Any, definitions: Any) -> Any:
        results = list(run(tasks, definitions))
        if tasks and tasks[0].kernel == "fold" and not tasks[0].erasures:
            if at_once:
                assert [item.state for item in erase(requests)] == ["rewriting", "rewriting"]
            else:
                failpoints.configure({"PRISM_FAILPOINTS": "erase.after_rule=raise(StoreUnavailable)"})
                with pytest.raises(PrismError):
                    run_erase(requests.world.context, "log.request", WHERE)
                failpoints.configure({})
        yield from results

    monkeypatch.setattr(requests.world.context.engine, "run", with_a_rule)
    assert "gone" in {row[0] for row in requests.show(now)}
    assert "records" in holding(requests.world)
    assert [item.state for item in continue_erasures(requests.world.context).erasures] == ["publishing", "rewriting"]
    close_early(requests, now)
    assert requests.show(now) == requests.wanted()
    prove(requests)
    assert holding(requests.world) == []
    assert len(requests.seen()) == 20


def test_what_a_later_erasure_looks_through_is_free_of_an_earlier_one_that_was_overtaken(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, over = requests.world, "2026-03-02T02:00"
    names = ["gone", "other", *(f"r{number}" for number in range(20))]
    requests.arrive([("back", back(name, NOON, 1)) for name in names], NOON)
    requests.show(NOON)
    world.discover(over)
    requests.show(over)
    failpoints.configure({"PRISM_FAILPOINTS": "erase.after_rule=raise(StoreUnavailable)"})
    for name in names[:2]:
        with pytest.raises(PrismError):
            run_erase(world.context, "log.request", f"request_id = '{name}'")
    failpoints.configure({})
    run = world.context.engine.run
    merged: list[int] = []

    def behind_a_merge(tasks: Any, definitions: Any) -> Any:
        results = list(run(tasks, definitions))
        if tasks[0].kernel == "write" and tasks[0].erasures and "/records/" in tasks[0].inputs[0].key and not merged:
            merged.append(len(world.merge(over).merged))
        yield from results

    monkeypatch.setattr(world.context.engine, "run", behind_a_merge)
    assert continue_erasures(world.context).errors == ()
    assert merged == [2], "the log, and the records that the first one has searched"
    continue_erasures(world.context)
    world.catalog(over)
    prove(requests, over)
    prove(requests, over)
    assert holding(world) == holding(world, "other") == []
    assert len(requests.seen()) == 20


def test_what_a_fold_has_read_before_its_erasure_leaves_the_records_and_then_the_log(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests.arrive([("back", back("gone", NOON, 1)), *(("back", back(f"r{n}", NOON, 1)) for n in range(20))], NOON)
    run = requests.world.context.engine.run
    states: list[str] = []

    def behind_an_erasure(tasks: Any, definitions: Any) -> Any:
        if tasks and tasks[0].kernel == "fold" and not states:
            states.append("")
            report = run_erase(requests.world.context, "log.request", WHERE)
            states[:] = [status.state for status in report.erasures]
        yield from run(tasks, definitions)

    monkeypatch.setattr(requests.world.context.engine, "run", behind_an_erasure)
    assert len(requests.show(NOON)) == 21  # fails on any error, such as one of changes that are set aside
    assert states == ["rewriting", "rewriting"]
    close_early(requests)
    assert len(requests.show(NOON)) == 20
    assert passes(requests.world, CHANGES_BALANCE)
    prove(requests)
    assert holding(requests.world) == []


POINTS = (
    "erase.in_rule", "erase.after_rule", "fold.in_commit", "fold.after_commit", "erase.before_commit_records",
    "erase.in_commit_records", "erase.after_commit_records", "erase.before_advance",
)  # fmt: skip


def test_an_error_at_each_step_is_made_good_by_the_next_call(requests: Requests) -> None:
    everywhere(requests)
    before = requests.seen()
    for point in POINTS:
        failpoints.configure({"PRISM_FAILPOINTS": f"{point}=1*raise(StoreUnavailable)"})
        with suppress(PrismError):
            assert run_erase(requests.world.context, "log.request", WHERE, rows=6).errors != (), point
        failpoints.configure({})
        assert requests.seen() == before
    statuses = continue_erasures(requests.world.context).erasures
    assert [status.rows_erased for status in statuses] == [2, 1]
    close_early(requests, NEXT_DAY)
    requests.world.catalog(NEXT_DAY)
    assert requests.show(NEXT_DAY) == requests.wanted() == [row for row in before if row[0] != "gone"]
    prove(requests, NEXT_DAY)
    assert holding(requests.world) == []
    assert passes(requests.world, CHANGES_BALANCE, ERASURES_PROVED)


def test_an_object_of_records_that_cannot_be_read_holds_its_erasure_open_and_says_so(requests: Requests) -> None:
    requests.arrive([("back", back("gone", NOON, 1)), *(("back", back(f"r{n}", NOON, 1)) for n in range(20))], NOON)
    requests.show(NOON)
    root = requests.world.root / "buckets" / "lake"
    (lost,) = [
        root / name
        for name in keys(requests.world)
        if "/records/" in name and "gone" in pq.read_table(root / name)["request_id"].to_pylist()
    ]
    body = lost.read_bytes()
    lost.unlink()
    (last, *_) = reversed(plan_erasure(requests.world.context, "log.request", WHERE).sentences[:1])
    assert "1 object cannot be read, and it waits for that" in last
    report = run_erase(requests.world.context, "log.request", WHERE)
    assert "1 object of folds cannot be read" in report.errors[0]
    (records, changes) = report.erasures
    assert (records.state, changes.state) == ("rewriting", "rewriting")
    assert "cannot be read" in str(records.waits_for)
    lost.write_bytes(body)
    assert continue_erasures(requests.world.context).errors == ()
    requests.show(NOON)
    close_early(requests)
    prove(requests)
    assert holding(requests.world) == []


def test_settled_records_that_cannot_be_read_are_named_until_they_can(requests: Requests) -> None:
    requests.arrive([("back", back("gone", NOON, 1)), *(("back", back(f"r{n}", NOON, 1)) for n in range(20))], NOON)
    requests.show(NOON)
    requests.arrive([("back", back("new", "2026-03-02T11:00", 1))], "2026-03-02T11:30")  # moves the watermark
    before = requests.show("2026-03-02T11:31")
    assert ("visible", True) in parts(requests.world)
    root = requests.world.root / "buckets" / "lake"
    records = [root / name for name in keys(requests.world) if "/records/dt=2026-03-01/" in name]
    (lost,) = [path for path in records if "gone" in pq.read_table(path)["request_id"].to_pylist()]
    body = lost.read_bytes()
    lost.write_bytes(b"PAR1 no more")
    report = run_erase(requests.world.context, "log.request", WHERE)
    assert [lost.name in error for error in report.errors] == [True]
    assert lost.name in str(report.erasures[0].waits_for)
    lost.write_bytes(body)
    assert [item.rows_erased for item in continue_erasures(requests.world.context).erasures] == [1, 1]
    assert requests.show("2026-03-02T11:32") == [row for row in before if row[0] != "gone"]
    prove(requests, "2026-03-02T11:33")
    assert holding(requests.world) == []


def test_a_day_that_expires_meanwhile_stops_no_erasure(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    world = requests.world
    requests.arrive([("front", front(name, NOON, "home")) for name in ("gone", "kept")], NOON)
    requests.fold(NOON)
    world.discover("2026-03-03T12:00")
    requests.fold("2026-03-03T12:00")
    assert parts(world) == {("visible", True)}

    def expire(name: str) -> None:
        if name == "erase.before_commit_records":
            with world.context.database.begin() as connection:
                connection.exec_driver_sql("UPDATE prism_partitions SET expire_time = now() WHERE switched")

    monkeypatch.setattr(record_erasure, "failpoint", expire)
    records, _ = erase(requests, rows=2)
    assert (records.rows_erased, records.state) == (1, "waiting")


def test_snapshots_of_iceberg_lose_the_key_too(requests: Requests) -> None:
    world = requests.world
    world.apply(a_join_table(dirty=0.9, more="iceberg: true\n"))
    requests.arrive([("back", back("gone", NOON, 1)), *(("back", back(f"r{n}", NOON, 1)) for n in range(20))], NOON)
    requests.show(NOON)
    world.iceberg(NOON)
    assert erase(requests)[0].state == "publishing"
    requests.show(NOON)
    world.iceberg(NOON)
    assert requests.seen_in_iceberg() == requests.seen()
    close_early(requests)
    world.iceberg(NOON)
    report = continue_erasures(world.context)
    assert requests.seen() == requests.wanted()
    assert [item.state for item in report.erasures] == ["waiting", "waiting"]
    prove(requests)
    assert holding(world) == []
    assert len(requests.seen_in_iceberg()) == 20
    for table in ("log.request", "log.request_changes"):
        loaded = world.iceberg_table(table)
        for snapshot in loaded.snapshots():
            found = loaded.scan(snapshot_id=snapshot.snapshot_id).to_arrow()["request_id"].to_pylist()
            assert "gone" not in found


def test_records_are_rebuilt_while_an_erasure_of_them_waits(requests: Requests) -> None:
    requests.arrive([("front", front(f"r{number}", NOON, "home")) for number in range(12)], NOON)
    requests.show(NOON)
    assert all(item.proof is None for item in erase(requests, "request_id = 'r1'", rows=2))
    report = run_rebuild(requests.world.context, "log.request", now=utc(NOON))
    assert (report.errors, report.changed) == ((), False)
    close_early(requests)
    assert requests.show(NOON) == requests.wanted()


def test_an_erasure_that_an_unreadable_object_holds_goes_on_after_the_rebuild_that_it_asks_for(
    requests: Requests,
) -> None:
    world = requests.world
    requests.arrive([("front", front(f"r{number}", NOON, "home")) for number in range(12)], NOON)
    requests.show(NOON)
    with world.context.database.begin() as connection:
        table = requests.table
        current = record_objects.load_current(connection, world.context.lake.keys(table), table.table_id)
    lost = next(item for item in current if item.part is RecordPart.VISIBLE)
    (world.root / "buckets" / lost.bucket / lost.key).unlink()

    held = run_erase(world.context, "log.request", "request_id = 'r1'", rows=2)
    assert any("prism rebuild" in error for error in held.errors)
    assert run_rebuild(world.context, "log.request", now=utc(NOON)).errors == ()
    world.catalog(NOON)
    assert continue_erasures(world.context, forced=True).errors == ()
    close_early(requests)
    assert [item.state for item in prove(requests).erasures] == ["proved", "proved"]
    assert holding(world, "r1") == []
    assert [row[0] for row in requests.seen()] == sorted(f"r{number}" for number in range(12) if number != 1)
