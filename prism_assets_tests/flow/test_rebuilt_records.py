"""Records made again of their changes: the same for readers, whatever was lost of them, and nothing where none was."""

from __future__ import annotations

from pathlib import Path

import pytest

from prism_assets import failpoints
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.records.folding import RecordObject
from prism_assets.metadata.days import partitions, retention
from prism_assets.metadata.records import record_objects
from prism_assets.metadata.tables import tables
from prism_assets.stages.checks.joins import CHANGES_BALANCE
from prism_assets.stages.checks.run import run_checks
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase.run import run_erase
from prism_assets.stages.fold.run import run_fold
from prism_assets.stages.rebuild import records as rebuilding
from prism_assets.stages.rebuild.report import RebuiltRecords, unmade
from prism_assets.stages.rebuild.run import preview_records, run_rebuild
from prism_assets_tests.builders import utc
from prism_assets_tests.requests import Requests, a_join_table, back, front, some_changes
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
EVENING = f"{DAY}T20:00"
OVER = "2026-03-02T01:40"
TABLE = "log.request"
POINTS = (
    "rebuild.after_compare", "rebuild.in_begin_records", "rebuild.after_execute_records", "rebuild.in_commit_records",
    "rebuild.after_commit_records",
)  # fmt: skip


@pytest.fixture
def requests(world: World) -> Requests:
    world.apply(a_join_table(more="iceberg: true\n"))
    return Requests(world)


def there(requests: Requests) -> list[RecordObject]:
    """All objects of records that nothing has replaced."""
    context = requests.world.context
    with context.database.begin() as connection:
        return record_objects.load_current(connection, context.lake.keys(requests.table), requests.table.table_id)


def path_of(requests: Requests, item: RecordObject) -> Path:
    return Path(requests.world.root / "buckets" / item.bucket / item.key)


def rebuild(requests: Requests, now: str) -> RebuiltRecords:
    """`prism rebuild`; fails the test on any error."""
    report = run_rebuild(requests.world.context, TABLE, now=utc(now))
    assert report.errors == ()
    (done,) = report.records
    return done


def settle(requests: Requests, now: str) -> None:
    requests.world.discover(now)
    requests.fold(now)


@pytest.mark.parametrize("merged", [False, True], ids=["small", "merged"])
def test_what_is_lost_or_damaged_is_made_again_and_nothing_else_is_written(requests: Requests, merged: bool) -> None:
    world = requests.world
    requests.arrive(some_changes(3, 60, NOON, requests=20, hours=3), NOON)
    requests.arrive(some_changes(4, 60, "2026-03-02T00:10", requests=20, hours=1), OVER)
    requests.show(OVER)
    settle(requests, OVER)
    if merged:
        assert world.merge(OVER).errors == ()
    world.catalog(OVER)
    before = requests.seen()
    assert before == requests.wanted()
    assert len({item.is_settled for item in there(requests)}) == 2
    nothing = rebuild(requests, OVER)
    assert (nothing.fold_id, nothing.records >= len(before)) == (None, True)
    objects = there(requests)
    lost = [item for item in objects if item.date == utc(NOON).date() and item.part.value == "visible"]
    path_of(requests, lost[0]).unlink()
    if len(lost) > 1:
        path_of(requests, lost[1]).write_bytes(b"PAR1 no more")
    (plan,) = preview_records(world.context, TABLE)
    assert "cannot be read" in str(plan)
    assert there(requests) == objects
    done = rebuild(requests, OVER)
    assert (done.days, len(done.unread)) == ((utc(NOON).date(),), min(2, len(lost)))
    kept = {item.object_id for item in objects if item.date not in done.days}
    assert kept == {item.object_id for item in there(requests) if item.date not in done.days} != set()
    world.catalog(OVER)
    assert requests.seen() == before
    world.iceberg(OVER)
    assert requests.seen_in_iceberg() == before
    assert run_doctor(world.context, now=utc(OVER)).findings == ()
    assert rebuild(requests, OVER).fold_id is None
    requests.arrive([("front", front("r3", "2026-03-02T01:30", "again"))], OVER)
    assert requests.show(OVER) == requests.wanted() != before
    settle(requests, "2026-03-03T12:00")
    assert world.merge("2026-03-03T12:00").errors == ()
    world.catalog("2026-03-03T12:00")
    assert requests.seen() == requests.wanted()


def refused(requests: Requests, now: str) -> str:
    """Why a rebuild was refused; nothing is changed by it."""
    before = there(requests)
    report = run_rebuild(requests.world.context, TABLE, now=utc(now))
    (problem,) = report.problems
    assert (report.changed, there(requests)) == (False, before)
    return problem.reason


def objects_of_log(requests: Requests) -> list[Path]:
    found = (requests.world.root / "buckets" / "lake").rglob("*.parquet")
    return sorted(path for path in found if "request_changes" in str(path))


def test_changes_that_wait_are_taken_and_a_record_that_one_bridges_moves(world: World) -> None:
    world.apply(a_join_table(dirty=1.0, buckets=1, lateness="6h"))
    requests = Requests(world)
    midnight = "2026-03-02T00:50"
    early, late = "2026-03-01T23:20", "2026-03-02T00:30"
    keys = [f"r{number}" for number in range(6)]
    requests.arrive([("front", front(key, at, "home")) for key in keys for at in (early, late)], midnight)
    requests.show(midnight)
    requests.arrive([("back", back("r1", "2026-03-01T23:55", 1, 200))], midnight)
    (fold,) = requests.fold(midnight).folds
    assert fold.pending == 1
    assert "take 1 changes that wait; write 2 days" in str(preview_records(world.context, TABLE)[0])
    done = rebuild(requests, midnight)
    assert (done.waited, len(done.days)) == (1, 2)
    (change,) = run_checks(world.context, [CHANGES_BALANCE], names=[TABLE], limits={}, now=utc(midnight))
    assert change.passed
    world.catalog(midnight)
    assert requests.seen() == requests.wanted()
    assert len(requests.seen()) == 2 * len(keys) - 1
    assert rebuild(requests, midnight).fold_id is None


def test_what_went_stays_gone_and_what_is_erased_or_damaged_meanwhile_too(world: World) -> None:
    world.apply(a_join_table(after="delete"))
    requests = Requests(world)
    requests.arrive([("front", front("gone", NOON, "home"))], NOON)
    requests.show(NOON)
    late = "2026-03-01T19:40"
    requests.arrive([("front", front(key, late, "home")) for key in ("a", "b", "c")], EVENING)
    settle(requests, EVENING)
    world.catalog(EVENING)
    assert [row[0] for row in requests.seen()] == ["a", "b", "c"]
    for item in there(requests):
        path_of(requests, item).unlink()
    assert "could not be" not in str(rebuild(requests, EVENING))
    world.catalog(EVENING)
    assert [row[0] for row in requests.seen()] == ["a", "b", "c"]
    for item in there(requests):
        path_of(requests, item).unlink()
    report = run_erase(world.context, TABLE, "request_id = 'b'", rows=1)
    assert report.errors
    assert rebuild(requests, EVENING).rows_written == 2
    world.catalog(EVENING)
    assert [row[0] for row in requests.seen()] == ["a", "c"]


def test_records_of_changes_that_are_not_kept_stay_as_they_are(requests: Requests) -> None:
    world, later = requests.world, "2026-03-03T12:00"
    requests.arrive([("front", front("old", NOON, "home"))], NOON)
    over = [("front", front("over", "2026-03-01T23:50", "home")), ("back", back("over", "2026-03-02T00:20", 1, 200))]
    requests.arrive(over, "2026-03-02T00:10")
    requests.arrive([("front", front(key, "2026-03-02T12:00", "home")) for key in ("a", "b")], "2026-03-02T12:00")
    settle(requests, later)
    for _ in range(2):
        assert world.merge(later).errors == ()
        world.catalog(later)
    before = requests.seen()
    assert [row[0] for row in before] == ["a", "b", "old", "over"]
    with world.context.database.begin() as connection:
        _, log = tables.load_join(connection, requests.table.table_id)
        first, *_ = partitions.load_table_partitions(connection, log.table_id)
        retention.expire(connection, first.partition_id)
    for path in objects_of_log(requests):
        if DAY in str(path):
            path.unlink()
    assert rebuild(requests, later).fold_id is None
    of_day = {item.date.isoformat(): item for item in there(requests)}
    path_of(requests, of_day["2026-03-02"]).unlink()
    done = rebuild(requests, later)
    assert [day.isoformat() for day in done.days] == ["2026-03-02"]
    assert "stay as they are" in str(unmade(done.changes_from))
    world.catalog(later)
    assert requests.seen() == before
    for item in there(requests):
        if item.date.isoformat() == DAY:
            path_of(requests, item).unlink()
    assert "restore the object" in refused(requests, later)


def expire(requests: Requests, day: str) -> None:
    """As retention does with a day of the records."""
    with requests.world.context.database.begin() as connection:
        days = partitions.load_table_partitions(connection, requests.table.table_id)
        (number,) = (item.partition_id for item in days if item.date.isoformat() == day)
        retention.expire(connection, number)


def test_changes_that_wait_for_a_lost_object_of_an_expired_day_wait_no_more(requests: Requests) -> None:
    world, later = requests.world, "2026-03-03T12:00"
    requests.arrive([("front", front(f"r{number}", NOON, "home")) for number in range(12)], NOON)
    requests.fold(NOON)
    lost, *others = there(requests)
    assert others
    path_of(requests, lost).unlink()
    requests.arrive([("front", front(f"s{number}", NOON, "home")) for number in range(12)], NOON)
    world.discover(later)
    assert run_fold(world.context, now=utc(later), ignore_pace=True).errors
    assert {item.is_settled for item in there(requests) if item.bucket_number != lost.bucket_number} == {True}
    expire(requests, DAY)
    for item in there(requests):
        if item.is_settled:
            path_of(requests, item).unlink()
    (pending,) = (item for item in there(requests) if item.part.value == "pending")
    done = rebuild(requests, later)
    assert (done.waited, len(done.unread)) == (pending.row_count, 1)
    assert {item.is_settled for item in there(requests)} == {True}
    assert rebuild(requests, later).fold_id is None


def test_a_day_that_expires_meanwhile_stops_no_rebuild_of_the_others(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = "2026-03-03T12:00"
    for start in (NOON, "2026-03-02T06:00"):
        requests.arrive([("front", front(f"{start}{number}", start, "home")) for number in range(4)], start)
        requests.fold(start)
    settle(requests, later)
    for item in there(requests):
        path_of(requests, item).unlink()

    def expire_first(name: str) -> None:
        if name == "rebuild.after_execute_records":
            expire(requests, DAY)

    monkeypatch.setattr(rebuilding, "failpoint", expire_first)
    assert [day.isoformat() for day in rebuild(requests, later).days] == [DAY, "2026-03-02"]
    requests.world.catalog(later)
    assert {row[0][:10] for row in requests.seen()} == {"2026-03-02"}


def test_it_is_refused_where_the_log_does_not_hold_what_records_are_made_of(requests: Requests) -> None:
    world = requests.world
    requests.arrive([("front", front("a", NOON, "home")), ("back", back("a", NOON, 1, 200))], NOON)
    requests.show(NOON)
    one, other = objects_of_log(requests)
    body = one.read_bytes()
    one.write_bytes(b"PAR1 no more")
    assert "prism repair --deep --table log.request_changes" in refused(requests, NOON)
    one.write_bytes(body)
    with pytest.raises(WrongUse, match="rebuilt as a whole"):
        run_rebuild(world.context, TABLE, day=utc(NOON).date(), now=utc(NOON))
    with pytest.raises(WrongUse, match="rebuilt without --without-missing"):
        run_rebuild(world.context, TABLE, without_missing=True, now=utc(NOON))
    with pytest.raises(WrongUse, match="rebuilt without --without-missing"):
        preview_records(world.context, TABLE, without_missing=True)
    with pytest.raises(WrongUse, match="send them again"):
        run_rebuild(world.context, "log.request_changes", day=utc(NOON).date(), now=utc(NOON))
    requests.arrive([("front", front("b", NOON, "home"))], NOON)
    (new,) = set(objects_of_log(requests)) - {one, other}
    new.unlink()
    assert run_fold(world.context, now=utc(NOON), ignore_pace=True).faults
    assert "set aside" in refused(requests, NOON)


def test_an_error_changes_nothing_and_the_next_call_goes_on(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests.arrive(some_changes(3, 20, NOON, requests=5, hours=1), NOON)
    rows = requests.show(NOON)
    lost = next(item for item in there(requests) if item.part.value == "visible")
    path_of(requests, lost).unlink()
    before = there(requests)
    for point in POINTS:
        monkeypatch.setattr(failpoints, "_POINTS", failpoints.parse(f"{point}=raise(StoreUnavailable)"))
        (problem,) = run_rebuild(requests.world.context, TABLE, now=utc(NOON)).problems
        assert problem.transient
        assert (there(requests) == before) == (point != POINTS[-1])
    monkeypatch.setattr(failpoints, "_POINTS", {})
    assert rebuild(requests, NOON).fold_id is None
    requests.world.catalog(NOON)
    assert requests.seen() == rows


def test_a_column_that_counts_and_came_later_is_the_same_in_records_of_before(world: World) -> None:
    text = a_join_table()
    world.apply(text)
    requests = Requests(world)
    requests.arrive([("front", front("a", NOON, "home")), ("back", back("a", NOON, 1, 200))], NOON)
    requests.show(NOON)
    hits = "  - {name: hits, type: bigint, group: front, merge: count}\n"
    world.apply(text.replace("  - {name: op,", f"{hits}  - {{name: op,"))
    world.catalog(NOON)
    assert rebuild(requests, NOON).fold_id is None
    assert requests.seen() == requests.wanted()
