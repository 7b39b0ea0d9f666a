"""`prism erase`: matching rows leave every object of the lake, and readers lose no other row at any moment."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow.parquet as pq
import pytest

from prism_assets import failpoints
from prism_assets.domain.errors import StoreUnavailable, WrongUse
from prism_assets.metadata.intake import replays
from prism_assets.objectstore.stores import Stores
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase import rows as erase_rows
from prism_assets.stages.erase.plan import plan_erasure
from prism_assets.stages.erase.report import ErasureReport, ErasureStatus, read_erasures
from prism_assets.stages.erase.run import continue_erasures, run_erase, sources_of
from prism_assets.stages.findings.erasures import ERASURES_PROVED
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.replay.run import run_replay
from prism_assets.stages.run import run_until_idle
from prism_assets.stages.status import read_status
from prism_assets.stages.stream.commit import commit_batch
from prism_assets.stages.stream.plan import start_batch
from prism_assets.stages.stream.unread import give_up_object, retry_object
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.stages.aging import keys
from prism_assets_tests.stages.engines import FailingEngine, another_worker
from prism_assets_tests.stages.test_checks import check
from prism_assets_tests.world import World

TABLE = a_table(
    columns=["{name: user_id, type: bigint}", "{name: note, type: string}"],
    merge="{interval: 0, sort_by: [time, user_id]}",
)
NOON, NEXT_DAY = "2026-03-01T12:00", "2026-03-02T00:10"
WHERE = "user_id = 42"
NAME = "log.events"


@pytest.fixture
def world(services: Any, database_url: str, tmp_path: Any) -> Iterator[World]:
    """A platform whose garbage collection may delete all garbage in one run."""
    with a_world(services, database_url, tmp_path, gc_max_fraction=1.0, quarantine_days=3_650) as made:
        yield made


def arrive(world: World, users: Sequence[int], *, at: str = NOON, now: str = NOON, broken: Sequence[str] = ()) -> None:
    """Streams one object with a row for each user, and lines that cannot be rows."""
    rows = [row | {"user_id": user} for row, user in zip(some_rows(len(users), utc(at)), users, strict=True)]
    lines = [json.dumps(row) for row in rows] + list(broken)
    world.drop([], body=gzip.compress("\n".join(lines).encode()))
    world.stream(now)


def users(world: World) -> list[int]:
    return sorted(row[0] for row in world.query(f"SELECT user_id FROM {NAME}"))


def later(days: float = 10) -> datetime:
    """When every lease is over."""
    return datetime.now(timezone.utc) + timedelta(days=days)


def erase(world: World, where: str = WHERE, **more: Any) -> ErasureStatus:
    report = run_erase(world.context, NAME, where, **more)
    assert report.errors == ()
    return report.erasures[0]


def go_on(world: World, now: datetime | None = None) -> ErasureReport:
    report = continue_erasures(world.context, now=now, forced=True)
    assert report.errors == ()
    return report


def matching_objects(world: World) -> list[str]:
    """Returns the objects of the lake with a row of user 42, read from the store."""
    root = world.root / "buckets" / "lake"
    return [
        key
        for key in keys(world)
        if key.endswith(".parquet") and 42 in pq.read_table(root / key, columns=["user_id"])["user_id"].to_pylist()
    ]


def is_clean(world: World) -> bool:
    report = run_doctor(world.context, deep=True)
    assert report.findings == ()
    return report.is_clean


def switched(world: World) -> None:
    world.apply(TABLE)
    for number in range(3):
        arrive(world, [number, 42] * 5 + [7] * 100)
    world.catalog(NOON)
    world.catalog("2026-03-02T00:10")
    world.merge("2026-03-02T00:10")
    world.catalog("2026-03-02T00:20")
    arrive(world, [42, 50] + [7] * 20, now="2026-03-02T01:00")
    world.catalog("2026-03-02T01:00")


def test_merged_objects_and_late_ones_are_rewritten_and_published_anew(world: World) -> None:
    switched(world)
    status = erase(world)
    assert (status.state, status.rows_erased, status.objects_rewritten) == ("publishing", 16, 2)
    assert 42 in users(world), "readers of before go on reading what they were sent to"
    world.catalog("2026-03-02T02:00")
    assert users(world) == sorted([0, 1, 2] * 5 + [7] * 320 + [50])
    assert is_clean(world)
    assert go_on(world).erasures[0].state == "waiting"
    assert len(matching_objects(world)) == 5, "three small objects, the merged one and the late one of before"
    assert go_on(world, later()).erasures[0].state == "proved"
    assert matching_objects(world) == []
    assert is_clean(world)
    assert world.merge("2026-03-02T05:00", everything=True).errors == ()
    world.catalog("2026-03-02T05:00")
    assert 42 not in users(world)
    assert is_clean(world)


def test_the_same_predicate_again_is_the_same_erasure_and_changes_nothing(world: World) -> None:
    switched(world)
    first = erase(world)
    before = keys(world)
    again = run_erase(world.context, NAME, f" {WHERE} ")
    assert again.erasures[0].erasure_id == first.erasure_id
    assert again.erasures[0].rows_erased == first.rows_erased
    assert keys(world) == before


def test_a_plan_says_what_would_be_done_and_writes_nothing(world: World) -> None:
    switched(world)
    before = keys(world)
    plan = plan_erasure(world.context, NAME, WHERE)
    assert (plan.rows, plan.matching, plan.objects, plan.objects_searched) == (352, 16, 2, 2)
    assert {day.isoformat(): rows for day, rows in plan.by_day.items()} == {"2026-03-01": 16}
    assert plan_erasure(world.context, NAME, "user_id = 4711").objects_read == 0, "statistics say so"
    assert keys(world) == before
    assert go_on(world).erasures == ()


REFUSED = {
    "nothing": ("", "--where is empty"),
    "an unknown column": (
        "user = 42",
        "there is no column user above this one; did you mean user_id? (at character 1)",
    ),
    "no SQL": ("user_id = ", 'this is no SQL expression: syntax error at or near "=" (at character 9)'),
    "a number": ("user_id + 1", "it must be true or false, and is of DuckDB's type"),
    "no column": ("1 = 1", "names no column"),
    "a subquery": ("user_id IN (SELECT 1)", "expressions see one row and no table"),
    "a clock": ("time < now()", "the function now is not allowed"),
    "types that do not fit": ("1 = 1 AND lower(user_id) = 'x'", "explicit type casts. (at character 11)"),
    "all rows": (
        "user_id >= 0",
        "it matches every one of the 20 rows of the table: if that is meant, repeat with --rows 20",
    ),
    "many rows": ("user_id < 5", "it matches 5 of 20 rows, more than 10%"),
    "what fails": ("CAST(note AS integer) = 3", "--where fails on 1 row"),
}


@pytest.mark.parametrize(("where", "told"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_meant_or_computed_is_refused_and_changes_nothing(world: World, where: str, told: str) -> None:
    world.apply(TABLE)
    rows = [row | {"user_id": number} for number, row in enumerate(some_rows(20, utc(NOON)))]
    rows[3]["note"] = "x"
    world.drop(rows)
    world.stream(NOON)
    before = keys(world)
    with pytest.raises(WrongUse) as refused:
        run_erase(world.context, NAME, where)
    assert told in str(refused.value)
    assert keys(world) == before
    assert go_on(world).erasures == ()


def test_a_number_of_rows_that_is_not_theirs_does_not_confirm(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [1, 2, 3])
    world.catalog(NEXT_DAY)
    with pytest.raises(WrongUse, match="repeat with --rows 3, and not 2"):
        run_erase(world.context, NAME, "user_id > 0", rows=2)
    assert erase(world, "user_id > 0", rows=3).rows_erased == 3
    world.catalog(NEXT_DAY)
    assert users(world) == [], "an object without rows is left"
    arrive(world, [0], now=NEXT_DAY)
    assert world.merge(NEXT_DAY, everything=True).errors == ()
    world.catalog("2026-03-02T00:20")
    world.catalog("2026-03-02T00:30")
    assert users(world) == [0]
    assert is_clean(world)


def test_rows_for_which_the_predicate_is_null_stay(world: World) -> None:
    world.apply(TABLE)
    rows = [row | {"user_id": 42 if number == 1 else None} for number, row in enumerate(some_rows(20, utc(NOON)))]
    world.drop(rows)
    world.stream(NOON)
    world.catalog(NEXT_DAY)
    assert erase(world).rows_erased == 1
    world.catalog(NEXT_DAY)
    assert len(world.ids()) == 19


def test_late_rows_that_match_do_not_come_in_and_are_counted(world: World) -> None:
    switched(world)
    erase(world)
    arrive(world, [42, 60, 42], now="2026-03-02T03:00", broken=['{"user_id": 42}', '{"user_id": 7}', "{user"])
    world.catalog("2026-03-02T03:00")
    assert sorted(set(users(world))) == [0, 1, 2, 7, 50, 60]
    statement = "SELECT lines_in, rows_out, rows_quarantined, rows_erased FROM prism_staging_objects ORDER BY 1 LIMIT 1"
    with world.context.database.begin() as connection:
        assert tuple(connection.exec_driver_sql(statement).one()) == (6, 1, 2, 3)
    (key,) = keys(world, "/quarantine/")
    lines = [json.loads(line) for line in gzip.decompress(world.context.stores.get("lake", key)).splitlines()]
    assert [(line["reason"], "text" in line) for line in lines] == [("missing_time", True), ("bad_json", False)]
    assert is_clean(world)


def test_a_batch_that_was_started_before_the_rule_does_not_slip_through(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [42] + [1] * 20)
    world.drop([row | {"user_id": 42} for row in some_rows(3, utc(NOON))])
    world.discover(NOON)
    plan = start_batch(world.context, None)
    assert plan is not None
    results = list(world.context.engine.run(plan.tasks, plan.definitions))

    status = erase(world)
    assert status.state == "rewriting"
    assert status.waits_for
    assert status.waits_for.startswith("1 object that batches began before it was made")
    commit_batch(world.context, plan, results, utc(NOON))
    world.catalog(NEXT_DAY)
    assert users(world).count(42) == 4
    status = go_on(world).erasures[0]
    assert (status.state, status.rows_erased) == ("publishing", 4)
    world.catalog(NEXT_DAY)
    assert 42 not in users(world)
    assert go_on(world).erasures[0].state == "waiting"
    assert go_on(world, later()).erasures[0].state == "proved"


def test_an_object_that_lies_uploaded_when_its_rule_is_made_hides_no_other_row(world: World) -> None:
    """Its conversion ignores the rule, so that a retry finds its own bytes. The erasure rewrites it afterwards."""
    world.apply(TABLE)
    arrive(world, [7] * 60)
    world.catalog(NOON)
    rows = [row | {"user_id": user} for row, user in zip(some_rows(3, utc(NOON)), [41, 42, 43], strict=True)]
    world.drop(rows)
    world.discover(NOON)
    another_worker(world, FailingEngine(world.context.engine, 1)).stream(NOON)
    assert {41, 42, 43} < set(users(world)), "readers of an open day list what is uploaded"
    status = erase(world)
    assert (status.state, {41, 43} < set(users(world))) == ("rewriting", True)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_staging_objects SET retry_time = NULL WHERE state = 'pending'")
    assert world.stream(NOON).rows_out == 3
    assert {41, 43} < set(users(world))
    assert go_on(world).erasures[0].state == "rewriting"
    world.catalog(NEXT_DAY)
    assert go_on(world).erasures[0].state == "publishing"
    world.catalog(NEXT_DAY)
    assert (set(users(world)), is_clean(world)) == ({7, 41, 43}, True)
    assert go_on(world).erasures[0].state == "waiting"
    assert go_on(world, later()).erasures[0].state == "proved"
    assert matching_objects(world) == []


def test_an_object_that_is_restarted_behind_its_rule_keeps_no_erasure_waiting(world: World) -> None:
    world.apply(TABLE)
    key = world.drop([row | {"user_id": 42} for row in some_rows(3, utc(NOON))])
    world.discover(NOON)
    another_worker(world, FailingEngine(world.context.engine, 1)).stream(NOON)
    assert erase(world).state == "rewriting"
    give_up_object(world.context, key)
    retry_object(world.context, key)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_abandoned_uploads SET remove_time = clock_timestamp()")
    assert go_on(world).erasures[0].state == "waiting"
    world.stream(NOON)
    world.catalog(NOON)
    assert (users(world), matching_objects(world)) == ([], [])
    assert go_on(world, later()).erasures[0].state == "proved"


def test_a_merge_that_read_objects_of_before_is_not_committed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.apply(TABLE)
    for _ in range(3):
        arrive(world, [42] + [1] * 20)
    run = world.context.engine.run
    done: list[ErasureStatus] = []

    def and_then_erase(tasks: Any, definitions: Any) -> Any:
        results = list(run(tasks, definitions))
        if tasks[0].kernel == "write" and not tasks[0].erasures and not done:
            done.append(erase(world))
        yield from results

    monkeypatch.setattr(world.context.engine, "run", and_then_erase)
    world.catalog("2026-03-02T00:10")
    report = world.merge("2026-03-02T00:10")
    assert [problem.transient for problem in report.problems] == [True]
    assert "rewritten meanwhile" in report.errors[0]
    assert done[0].rows_erased == 3
    assert world.merge("2026-03-02T00:20").errors == ()
    world.catalog("2026-03-02T00:30")
    assert users(world) == [1] * 60
    assert go_on(world).erasures[0].state == "waiting"
    assert go_on(world, later()).erasures[0].state == "proved"
    assert matching_objects(world) == []
    assert is_clean(world)


def merged_while_it_is_erased(world: World, monkeypatch: pytest.MonkeyPatch, place: str) -> ErasureStatus:
    """Erases rows while a merge of the same objects commits between the erasure's search and its replacement."""
    world.apply(TABLE)
    for _ in range(3):
        arrive(world, [42] + [1] * 20)
    world.catalog("2026-03-02T00:10")
    meanwhile(monkeypatch, place, lambda: world.merge("2026-03-02T00:10"))
    return erase(world)


@pytest.mark.parametrize("place", ["erase.after_search", "erase.before_commit"])
def test_what_merges_commit_during_the_search_is_searched_too(
    world: World, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    status = merged_while_it_is_erased(world, monkeypatch, place)
    assert (status.state, status.waits_for) == ("rewriting", "the next call: others were at the same objects")
    assert go_on(world).erasures[0].state == "publishing"
    world.catalog("2026-03-02T00:30")
    assert users(world) == [1] * 60
    assert go_on(world, later()).erasures[0].state == "proved"
    assert matching_objects(world) == []
    assert is_clean(world)


@pytest.mark.parametrize("another", [False, True])
def test_an_erasure_that_was_taken_for_searched_searches_again_when_its_proof_fails(
    world: World, monkeypatch: pytest.MonkeyPatch, another: bool
) -> None:
    """The patch takes away the count at the end of the search, so objects committed meanwhile by a merge are
    overlooked.

    With `another`, a second erasure has marked such an object as searched.
    """
    with monkeypatch.context() as patch:
        patch.setattr(erase_rows.RowErasure, "_count_unsearched", lambda _: 0)
        assert merged_while_it_is_erased(world, monkeypatch, "erase.after_search").state == "publishing"
        world.catalog("2026-03-02T00:30")
        assert go_on(world).erasures[0].state == "waiting"
    if another:
        assert erase(world, "user_id = 4711").state == "waiting"
    status = go_on(world, later()).erasures[0]
    assert status.state == "rewriting"
    assert str(status.waits_for).startswith("the next call, which searches 1 object: 3 rows or lines still match")
    assert go_on(world, later()).erasures[0].state == "publishing"
    world.catalog("2026-03-02T00:40")
    assert users(world) == [1] * 60
    assert go_on(world, later(20)).erasures[0].state == "proved"
    assert matching_objects(world) == []
    assert is_clean(world)


def test_repair_makes_rewritten_objects_again_as_they_are(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [42, 7] + [1] * 20)
    world.catalog(NEXT_DAY)
    erase(world)
    (side,) = keys(world, "-r1.parquet")
    world.catalog(NEXT_DAY)
    (world.root / "buckets/lake" / side).unlink()
    assert run_repair(world.context).repaired == 1
    world.catalog("2026-03-02T00:20")
    assert users(world) == sorted([7] + [1] * 20)
    assert is_clean(world)


def test_what_another_rewriting_left_under_the_next_key_is_passed_over(world: World) -> None:
    switched(world)
    (part,) = keys(world, "/part-")
    name, _, number = part.removesuffix(".parquet").rpartition("-r")
    key = f"{name}-r{int(number) + 1}.parquet"
    world.context.stores.put("lake", key, world.context.stores.get("lake", part))
    assert erase(world).objects_rewritten == 2
    world.catalog("2026-03-02T02:00")
    assert 42 not in users(world)
    go_on(world)
    assert go_on(world, later()).erasures[0].state == "proved"
    assert matching_objects(world) == []


def test_several_erasures_of_a_table_are_carried_out_one_after_the_other(world: World) -> None:
    switched(world)
    erase(world)
    erase(world, "user_id = 2")
    world.catalog("2026-03-02T02:00")
    assert sorted(set(users(world))) == [0, 1, 7, 50]
    go_on(world)
    assert [item.state for item in go_on(world, later()).erasures] == ["proved", "proved"]
    assert is_clean(world)


def test_staging_objects_with_such_rows_are_listed_for_their_owner(world: World) -> None:
    switched(world)
    arrive(world, [1] * 5, now="2026-03-02T02:00")
    status = erase(world)
    found = sources_of(world.context, status.erasure_id)
    assert found == [
        ("s3://staging/events/2026/000004.gz", True),
        *((f"s3://staging/events/2026/00000{number}.gz", False) for number in (1, 2, 3)),
    ]
    with pytest.raises(WrongUse, match="there is no erasure 77"):
        sources_of(world.context, 77)


def test_objects_that_come_later_and_those_of_lines_that_nobody_can_judge_are_listed_too(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [1] * 5, broken=['{"user_id": 42, "ti'])
    first = erase(world)
    arrive(world, [42] + [1] * 5)
    second = erase(world, "user_id = 43")
    arrive(world, [43] + [1] * 5)
    torn, late, later_still = (f"s3://staging/events/2026/00000{number}.gz" for number in (1, 2, 3))
    assert sources_of(world.context, first.erasure_id) == [(late, True), (torn, False), (later_still, False)]
    assert sources_of(world.context, second.erasure_id) == [(later_still, False)]
    proofs = [item.proof for item in go_on(world, later()).erasures]
    assert [(proof["sources"], proof["possible_sources"]) for proof in proofs if proof] == [(1, 2), (0, 1)]


def test_a_column_that_came_later_is_null_in_objects_of_before(world: World) -> None:
    world.apply(a_table(merge="{interval: 0}"))
    world.drop(some_rows(20, utc(NOON)))
    world.stream(NOON)
    world.apply(TABLE)
    arrive(world, [42] + [1] * 30)
    world.catalog(NEXT_DAY)
    assert erase(world).rows_erased == 1
    assert erase(world, "user_id IS NULL AND note = 'x'").rows_erased == 0
    world.catalog(NEXT_DAY)
    assert len(world.ids()) == 50


def test_status_and_a_check_tell_of_an_erasure_until_it_is_proved_and_never_what_is_erased(world: World) -> None:
    switched(world)
    assert check(world, ERASURES_PROVED, NOON).sentence == "all erasures are proved"
    erase(world)
    (status,) = read_erasures(world.context, world.context.choose_tables(None))
    assert "is publishing: 16 rows out of 2 objects" in str(status)
    (found,) = (item for item in read_status(world.context, now=utc(NOON))[0].findings)
    assert found.kind == "unproved_erasure"
    told = check(world, ERASURES_PROVED, NOON)
    assert not told.passed
    assert told.sentence.startswith("erasure 1 is publishing and waits for catalog runs")
    world.catalog("2026-03-02T02:00")
    go_on(world)
    proved = go_on(world, later()).erasures[0]
    assert check(world, ERASURES_PROVED, NOON).sentence == "all erasures are proved"
    assert read_status(world.context, now=utc(NOON))[0].findings == ()
    assert "and 0 match. Staging objects are not of the lake: 1 hold such rows, and 3 more may" in str(proved)
    assert not [text for text in (str(status), told.sentence, str(proved)) if "user_id" in text]


def test_a_run_until_all_is_idle_goes_on_with_erasures(world: World) -> None:
    switched(world)
    erase(world)
    turns = run_until_idle(world.context, clock=lambda: utc("2026-03-02T03:00"))
    assert turns[-1].errors == ()
    (status,) = read_erasures(world.context, world.context.choose_tables(None))
    assert status.state == "waiting"
    assert 42 not in users(world)


def test_a_replay_leaves_objects_with_rows_where_rows_are_being_erased_and_tells_why(
    world: World,
) -> None:
    world.apply(TABLE + 'reject: [{when: "user_id = 7", reason: not_yet}]\n')
    arrive(world, [7, 42, 1])
    arrive(world, [7])
    world.catalog("2026-03-02T01:00")
    erase(world, rows=1)
    world.apply(TABLE)
    report = run_replay(world.context, NAME, now=utc("2026-03-02T03:00"))
    assert (report.errors, report.objects, report.with_rows, report.erased) == ((), 1, 0, 1)
    assert [(left.reason, left.lines) for left in report.left] == [("not_yet", 1)]
    world.catalog("2026-03-02T03:00")
    assert users(world) == [1, 7]


def test_a_proof_waits_for_objects_that_the_store_refuses(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.apply(TABLE)
    arrive(world, [41, 42] + [7] * 30)
    world.catalog(NEXT_DAY)
    erase(world)
    world.catalog(NEXT_DAY)
    (written,) = keys(world, "-r1.parquet")
    assert go_on(world).erasures[0].state == "waiting"
    with monkeypatch.context() as refusing:
        read = Stores._read_part

        def refuse(self: Stores, bucket: str, key: str, *args: Any, **more: Any) -> Any:
            if key == written:
                raise StoreUnavailable("503 Slow Down")
            return read(self, bucket, key, *args, **more)

        refusing.setattr(Stores, "_read_part", refuse)
        (status,) = go_on(world, later()).erasures
        assert status.state == "waiting"
        assert f"{written} could not be read" in str(status)
    assert go_on(world, later()).erasures[0].state == "proved"


def test_lines_that_are_about_to_be_recorded_are_no_garbage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.apply(TABLE)
    arrive(world, [41, 43] + [7] * 30, broken=['{"user_id": 7}', '{"user_id": 42}'])
    meanwhile(monkeypatch, "erase.before_commit_lines", lambda: run_gc(world.context))
    assert erase(world).lines_erased == 1
    with world.context.database.begin() as connection:
        (key,) = connection.exec_driver_sql("SELECT object_key FROM prism_quarantine").scalars()
    assert b"7" in gzip.decompress(world.context.stores.get("lake", key))


def test_an_object_of_which_no_row_is_left_stops_no_publication(world: World) -> None:
    world.apply(a_table(columns=["{name: user_id, type: bigint}"], merge="{interval: 0}", iceberg="true"))
    arrive(world, [42])
    arrive(world, [7] * 60)
    world.catalog(NEXT_DAY)
    world.iceberg(NEXT_DAY)
    erase(world)
    world.iceberg(NEXT_DAY)
    arrive(world, [8], now=NEXT_DAY)
    assert run_iceberg(world.context, now=utc(NEXT_DAY), ignore_pace=True).errors == ()


def test_lines_of_an_object_that_is_restarted_are_left_to_its_batch(world: World) -> None:
    world.apply(TABLE)
    arrive(world, [7] * 60)
    arrive(world, [], broken=['{"user_id": 42}'])
    world.apply(TABLE.replace("  - {name: note", "  - {name: more, type: string}\n  - {name: note"))
    with world.context.database.begin() as connection:
        replays.restart(connection, [2], 2)
    run_erase(world.context, NAME, WHERE)
    world.stream(NOON)
    go_on(world)
    assert go_on(world, later()).erasures[0].state == "proved"
    assert is_clean(world)


def meanwhile(monkeypatch: pytest.MonkeyPatch, place: str, work: Callable[[], object]) -> None:
    """Lets others do something when an erasure comes to a place for the first time."""
    reach = failpoints.failpoint
    reached: list[str] = []

    def reach_and_work(name: str) -> None:
        if name == place and not reached:
            reached.append(name)
            work()
        reach(name)

    monkeypatch.setattr(erase_rows, "failpoint", reach_and_work)
