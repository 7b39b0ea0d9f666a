"""Settled records from many small objects to few even ones: the same rows for readers of every catalog."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from prism_assets import failpoints
from prism_assets.domain.records.folding import RecordObject
from prism_assets.domain.records.merge_plan import KEPT_FOR_LAST
from prism_assets.metadata import leases
from prism_assets.metadata.leases import LeaseKind
from prism_assets.metadata.records import record_objects
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.findings.records import find_merge_faults
from prism_assets.stages.merge import record_merge
from prism_assets.stages.merge.record_merge_plan import preview_record_merges
from prism_assets.stages.merge.report import MergedPartition, MergeReport
from prism_assets_tests.builders import utc
from prism_assets_tests.findings import says
from prism_assets_tests.requests import Requests, a_join_table, front, some_changes
from prism_assets_tests.stages.aging import gc, hours_pass, keys
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
EVENING = f"{DAY}T20:00"
OVER = "2026-03-02T01:40"
"""When nothing of the day can change any more, with the window and the lateness of the table."""
SMALL = "merge: {interval: 0, target_bytes: 40000}"


@pytest.fixture
def requests(world: World) -> Requests:
    world.apply(a_join_table(more="iceberg: true\n").replace("merge: {interval: 0}", SMALL))
    return Requests(world)


def shown(requests: Requests) -> list[RecordObject]:
    """Returns the objects that readers of the day should see."""
    found = {item.object_id: item for item in of_table(requests)}
    return [item for item in found.values() if item.part.value == "visible" and item.date.isoformat() == DAY]


def of_table(requests: Requests) -> list[RecordObject]:
    """Returns all current objects of the table."""
    context = requests.world.context
    with context.database.begin() as connection:
        return record_objects.load_current(connection, context.lake.keys(requests.table), requests.table.table_id)


def merge(requests: Requests, now: str) -> list[MergedPartition]:
    """Runs `prism merge`. Returns the merges of records."""
    report = requests.world.merge(now)
    return [item for item in report.merged if item.table_id == requests.table.table_id]


def settle(requests: Requests, now: str) -> None:
    """Lets every record settle that can settle at an instant."""
    requests.world.discover(now)
    requests.fold(now)


def test_a_day_that_is_over_becomes_even_objects_with_the_same_rows_everywhere(requests: Requests) -> None:
    requests.arrive(some_changes(3, 150, NOON, requests=40, hours=6), NOON)
    assert requests.show(NOON) == requests.wanted()
    settle(requests, OVER)
    before, rows = shown(requests), requests.wanted()
    assert len(before) > 40
    (planned,) = preview_record_merges(requests.world.context)
    (done,) = merge(requests, OVER)
    assert (done.objects_in, done.rows, done.plan) == (len(before), len(rows), planned.describe())
    after = shown(requests)
    assert len(after) == len(done.sizes) == len(planned.plan.groups) < 5
    assert all(item.is_merged and item.is_settled and item.merges == 1 for item in after)
    assert requests.seen() == rows  # the older objects are there as long as readers are sent to them
    requests.world.catalog(OVER)
    assert requests.seen() == rows
    requests.world.iceberg(OVER)
    assert requests.seen_in_iceberg() == rows
    assert sum(len(part.objects) for part in requests.world.reader().table("log.request").partitions) == len(after)
    for item in after:
        path = requests.world.root / "buckets" / item.bucket / item.key
        ids = [row[0] for row in requests.world.query(f"SELECT request_id FROM read_parquet('{path}')")]
        assert ids == sorted(ids)
        assert len(ids) == item.row_count
    assert merge(requests, OVER) == []
    assert preview_record_merges(requests.world.context) == []


def test_of_an_open_day_full_objects_are_cut_and_nothing_that_may_change(requests: Requests) -> None:
    requests.arrive(some_changes(3, 150, NOON, requests=60, hours=6), NOON)
    requests.show(EVENING)
    settle(requests, f"{DAY}T18:30")
    before = {item.object_id for item in of_table(requests) if not item.is_settled}
    (planned,) = preview_record_merges(requests.world.context)
    assert not planned.plan.completes
    (done,) = merge(requests, EVENING)
    assert done.left_behind == planned.plan.left_behind > 0
    assert {item.object_id for item in of_table(requests) if not item.is_settled} == before != set()
    (left,) = preview_record_merges(requests.world.context)
    waits = f"its merge of {left.objects} settled objects waits: {KEPT_FOR_LAST}"
    assert waits in says(requests.world.status(DAY, EVENING, "log.request").findings)
    requests.arrive([("front", front("late", f"{DAY}T19:59", "home"))], EVENING)
    assert requests.show(EVENING) == requests.wanted()
    settle(requests, OVER)
    requests.world.merge(OVER)
    assert {item.merges for item in shown(requests)} <= {1, 2}
    requests.world.catalog(OVER)
    assert requests.seen() == requests.wanted()


def test_a_fold_that_goes_on_meanwhile_is_waited_for_and_keeps_its_turn(requests: Requests) -> None:
    requests.arrive(some_changes(3, 60, NOON, requests=20, hours=3), NOON)
    requests.fold(EVENING)
    settle(requests, OVER)
    context, table = requests.world.context, requests.table
    with context.database.begin() as connection:
        held = leases.take(connection, LeaseKind.FOLD, [table.table_id], "a fold", 60)
    assert merge(requests, OVER) == []
    with context.database.begin() as connection:
        leases.release(connection, held)
    assert len(merge(requests, OVER)) == 1


def test_a_merge_that_stood_still_while_a_fold_went_on_changes_nothing(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests.arrive(some_changes(3, 60, NOON, requests=20, hours=3), NOON)
    requests.show(EVENING)
    settle(requests, OVER)
    before = shown(requests)
    requests.arrive([("front", front("new", "2026-03-02T01:30", "home"))], OVER)
    context = requests.world.context

    def stand_still(name: str) -> None:
        """Lets the lease expire, and a fold take it."""
        if name != "merge.after_execute_records":
            return
        with context.database.begin() as connection:
            connection.exec_driver_sql("UPDATE prism_leases SET heartbeat_time = now() - interval '1 hour'")
        assert requests.fold(OVER).changed

    monkeypatch.setattr(record_merge, "failpoint", stand_still)
    (problem,) = requests.world.merge(OVER).record_problems
    assert problem.transient
    assert shown(requests) == before
    requests.world.catalog(OVER)
    assert requests.seen() == requests.wanted()
    monkeypatch.undo()
    assert len(merge(requests, OVER)) == 1
    requests.world.catalog(OVER)
    assert requests.seen() == requests.wanted()


def test_nothing_is_put_into_a_day_that_expires_meanwhile(requests: Requests, monkeypatch: pytest.MonkeyPatch) -> None:
    requests.arrive([("front", front(name, NOON, "home")) for name in ("a", "b", "c", "d")], NOON)
    requests.fold(NOON)
    settle(requests, OVER)
    before, context = shown(requests), requests.world.context

    def expire(name: str) -> None:
        if name == "merge.after_execute_records":
            with context.database.begin() as connection:
                connection.exec_driver_sql("UPDATE prism_partitions SET expire_time = now() WHERE switched")

    monkeypatch.setattr(record_merge, "failpoint", expire)
    assert list(record_merge.merge_records(context)) == [MergeReport()]
    assert shown(requests) == before
    assert len(before) > 1


POINTS = (
    "merge.in_begin_records", "merge.after_begin_records", "write.before_put", "write.after_put",
    "merge.after_execute_records", "merge.in_commit_records", "merge.after_commit_records",
)  # fmt: skip


def test_a_merge_that_fails_anywhere_is_made_good_by_the_next(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests.arrive(some_changes(3, 60, NOON, requests=20, hours=3), NOON)
    requests.show(EVENING)
    settle(requests, OVER)
    requests.show(OVER)
    before, rows = shown(requests), requests.wanted()
    for point in POINTS:
        monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"{point}=raise(StoreUnavailable)"))
        (problem,) = requests.world.merge(OVER).record_problems
        assert problem.transient
        assert (shown(requests) == before) == (point != "merge.after_commit_records")
        requests.world.catalog(OVER)
        assert requests.seen() == rows
    monkeypatch.setattr(failpoints, "_POINTS", {})
    assert merge(requests, OVER) == []
    assert len(shown(requests)) == 1


def test_what_was_merged_is_collected_and_nothing_else(world: World) -> None:
    world.apply(a_join_table())
    settings = world.settings.model_copy(update={"gc_max_fraction": 1.0})
    world.context = replace(world.context, settings=settings)
    requests = Requests(world)
    requests.arrive(some_changes(3, 60, NOON, requests=20, hours=3), NOON)
    requests.show(EVENING)
    settle(requests, OVER)
    requests.show(OVER)
    assert len(keys(world, "/records/")) > 15
    world.merge(OVER)
    world.catalog(OVER)
    hours_pass(world, 100)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_rewrites SET finish_time = finish_time - interval '100 hours'")
    gc(world)
    assert keys(world, "/records/") == sorted(item.key for item in shown(requests))
    assert keys(world, "/hidden/") == keys(world, "/pending/") == []
    assert requests.seen() == requests.wanted()
    assert run_doctor(world.context, now=utc(OVER)).findings == ()


def test_an_object_that_cannot_be_read_holds_up_no_other_and_is_merged_once_it_is_restored(requests: Requests) -> None:
    requests.arrive(some_changes(3, 40, NOON, requests=20, hours=3), NOON)
    requests.show(NOON)
    settle(requests, OVER)
    before = shown(requests)
    damaged = before[3]
    path = Path(requests.world.root / "buckets" / damaged.bucket / damaged.key)
    body = path.read_bytes()
    path.write_bytes(bytes(len(body)))
    report = requests.world.merge(OVER)
    (problem,) = report.record_faults
    assert (problem.date, problem.transient) == (damaged.date, False)
    assert damaged.key in problem.reason
    assert len(shown(requests)) == 2
    with requests.world.context.database.begin() as connection:
        (told,) = find_merge_faults(connection, requests.table)
    assert damaged.key in told.says
    report = requests.world.merge(OVER)
    assert (report.merged, report.errors) == ((), ())
    path.write_bytes(body)
    assert requests.world.merge(OVER, everything=True).errors == ()
    (whole,) = shown(requests)
    assert whole.row_count == sum(item.row_count for item in before)
    with requests.world.context.database.begin() as connection:
        assert list(find_merge_faults(connection, requests.table)) == []
