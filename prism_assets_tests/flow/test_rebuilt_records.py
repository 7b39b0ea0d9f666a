"""Records made again of their changes: the same for readers, whatever was lost of them, and nothing where none was."""

from __future__ import annotations

from pathlib import Path

import pytest

from prism_assets.domain.folding import RecordObject
from prism_assets.metadata import record_objects
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.rebuild.records import preview_records
from prism_assets.stages.rebuild.report import RebuiltRecords
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets_tests.builders import utc
from prism_assets_tests.requests import Requests, a_join_table, front, some_changes
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
EVENING = f"{DAY}T20:00"
OVER = "2026-03-02T01:40"
TABLE = "log.request"


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
    assert "objects cannot be read" in str(plan)
    assert there(requests) == objects
    done = rebuild(requests, OVER)
    assert (done.days, len(done.unread)) == ((utc(NOON).date(),), min(2, len(lost)))
    kept = {item.object_id for item in objects if item.date not in done.days}
    assert kept == {item.object_id for item in there(requests) if item.date not in done.days} != set()
    world.catalog(OVER)
    assert requests.seen() == before
    world.iceberg(OVER)
    assert requests.seen_in_iceberg() == before
    assert run_doctor(world.context).findings == ()
    assert rebuild(requests, OVER).fold_id is None
    requests.arrive([("front", front("r3", "2026-03-02T01:30", "again"))], OVER)
    assert requests.show(OVER) == requests.wanted() != before
    settle(requests, "2026-03-03T12:00")
    assert world.merge("2026-03-03T12:00").errors == ()
    world.catalog("2026-03-03T12:00")
    assert requests.seen() == requests.wanted()
