"""Records of join tables as an Iceberg table: what a fold changes on several days is one commit."""

from __future__ import annotations

import pytest

from prism_assets.domain.iceberg.health import Health
from prism_assets.metadata.iceberg import iceberg_figures
from prism_assets.stages.iceberg.status import read_iceberg_status
from prism_assets_tests.requests import Requests, a_join_table, back, front, some_changes
from prism_assets_tests.stages.aging import gc, hours_pass, keys
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON = f"{DAY}T12:00"
NIGHT = f"{DAY}T23:00"


@pytest.fixture
def requests(world: World) -> Requests:
    world.apply(a_join_table(more="iceberg: true\n"))
    return Requests(world)


def publish(requests: Requests, now: str) -> None:
    """Shows records everywhere, and looks at them."""
    assert requests.show(now) == requests.wanted()
    requests.world.iceberg(now)
    assert requests.seen_in_iceberg() == requests.wanted()


def listed(requests: Requests) -> dict[str, int]:
    """The rows that PostgreSQL has as listed, by day."""
    with requests.world.context.database.begin() as connection:
        found = iceberg_figures.listed_rows(connection, [requests.table.table_id])
    return {item.date.isoformat(): item.rows for item in found}


def test_records_are_the_same_in_glue_and_in_iceberg_after_each_fold(requests: Requests) -> None:
    changes = some_changes(3, 90, NIGHT, requests=12, hours=3)
    for start in range(0, len(changes), 30):
        requests.arrive(changes[start : start + 30], NIGHT)
        publish(requests, NIGHT)
        assert sum(listed(requests).values()) == len(requests.wanted())
    assert requests.world.iceberg_table("log.request_changes").scan().to_arrow().num_rows == 90
    assert not requests.world.iceberg(NIGHT).changed


def test_a_record_that_takes_in_another_of_the_next_day_moves_in_one_commit(requests: Requests) -> None:
    requests.arrive([("front", front("a", f"{DAY}T23:20", "home"))], NIGHT)
    requests.arrive([("back", back("a", "2026-03-02T00:50", 1, 200))], NIGHT)
    publish(requests, NIGHT)
    assert listed(requests) == {DAY: 1, "2026-03-02": 1}
    requests.arrive([("back", back("a", f"{DAY}T23:59", 0, 404))], NIGHT)
    publish(requests, NIGHT)
    assert listed(requests) == {DAY: 1, "2026-03-02": 0}
    table = requests.world.iceberg_table("log.request")
    assert [table.scan(snapshot_id=item.snapshot_id).to_arrow().num_rows for item in table.snapshots()] == [2, 1]


def test_what_waits_for_a_commit_is_told(requests: Requests) -> None:
    requests.arrive([("front", front("a", NOON, "home"))], NOON)
    publish(requests, NOON)
    requests.arrive([("back", back("a", NOON, 1, 200))], NOON)
    requests.show(NOON)
    with requests.world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_rewrites SET finish_time = finish_time - interval '1 hour'")
    (status,) = read_iceberg_status(requests.world.context, ["log.request"])
    assert (status.seconds_behind // 3_600, status.left_out) == (1, ())
    requests.world.iceberg(NOON)
    (status,) = read_iceberg_status(requests.world.context, ["log.request"])
    assert (status.seconds_behind, status.left_out, status.error) == (0, (), None)
    assert isinstance(status.health, Health)


def test_records_stay_as_long_as_a_snapshot_has_them(requests: Requests) -> None:
    for number in range(3):
        requests.arrive([("front", front("a", NOON, "home", sent=number))], NOON)
        publish(requests, NOON)
    before = keys(requests.world, "/records/")
    hours_pass(requests.world, 100)
    with requests.world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_rewrites SET finish_time = finish_time - interval '100 hours'")
    gc(requests.world)
    assert keys(requests.world, "/records/") == before
    table = requests.world.iceberg_table("log.request")
    assert [table.scan(snapshot_id=item.snapshot_id).to_arrow().num_rows for item in table.snapshots()] == [1, 1, 1]
