"""Two records of different days that a late change makes one: readers of each catalog see it all the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from prism_assets.domain.errors import WrongUse
from prism_assets.stages.catalog.run import run_catalog
from prism_assets_tests.builders import utc
from prism_assets_tests.requests import Requests, a_join_table, back, front
from prism_assets_tests.world import World

ELDER, YOUNGER = "2026-03-01", "2026-03-02"
NOW = f"{YOUNGER}T00:40"
RECORDS, LINKED = "log.request", "log_symlink.request"


@pytest.fixture
def requests(world: World) -> Requests:
    """Two records of the key `a`, more than a window apart, of two days; readers see both."""
    world.apply(a_join_table(lateness="6h") + "symlink: true\n")
    found = Requests(world)
    pages = [front("a", f"{ELDER}T23:20", "home"), front("a", f"{YOUNGER}T00:30", "cart")]
    found.arrive([("front", page) for page in pages], NOW)
    assert len(found.show(NOW)) == 2
    return found


def pages(world: World, table: str) -> list[tuple[str, str]]:
    return world.query(f"SELECT dt::varchar, page FROM {table} ORDER BY dt, page NULLS LAST")


def shown(world: World) -> list[list[tuple[str, str]]]:
    return [pages(world, table) for table in (RECORDS, LINKED)]


BEFORE = [(ELDER, "home"), (YOUNGER, "cart")]
BRIDGED = [(ELDER, "cart")]


def bridge(requests: Requests) -> None:
    requests.arrive([("back", back("a", f"{ELDER}T23:55", 1, 200))], NOW)
    requests.fold(NOW)


def objects_of_elder(world: World) -> list[Path]:
    return sorted((world.root / "buckets" / "lake").glob(f"**/records/**/*{ELDER}*/**/*.parquet"))


def test_a_record_goes_to_the_earlier_day_of_both_catalogs(requests: Requests) -> None:
    bridge(requests)
    requests.world.catalog(NOW)
    assert shown(requests.world) == [BRIDGED, BRIDGED]
    assert requests.seen() == requests.wanted()


def test_a_later_day_keeps_its_row_until_the_earlier_one_is_shown(requests: Requests) -> None:
    world = requests.world
    before = set(objects_of_elder(world))
    bridge(requests)
    (written,) = set(objects_of_elder(world)) - before
    body = written.read_bytes()
    written.unlink()
    report = run_catalog(world.context, now=utc(NOW))
    assert [str(problem.date) for table in report.tables for problem in table.problems] == [ELDER, ELDER]
    (table,) = (table for table in report.tables if table.table == RECORDS)
    reason = f"is not published: records of it have moved to {ELDER}, which is shown before it"
    assert [(str(wait.date), wait.reason) for wait in table.waiting] == [
        (YOUNGER, reason),
        (YOUNGER, f"symlinks: {reason}"),
    ]
    assert shown(world) == [BEFORE, BEFORE]
    written.write_bytes(body)
    world.catalog(NOW)
    assert shown(world) == [BRIDGED, BRIDGED]


def test_days_without_moves_do_not_wait_for_each_other(requests: Requests) -> None:
    world = requests.world
    before = set(objects_of_elder(world))
    requests.arrive([("front", front("b", f"{ELDER}T23:20")), ("front", front("b", f"{YOUNGER}T00:30"))], NOW)
    requests.fold(NOW)
    for written in set(objects_of_elder(world)) - before:
        written.unlink()
    report = run_catalog(world.context, now=utc(NOW))
    assert [str(problem.date) for table in report.tables for problem in table.problems] == [ELDER, ELDER]
    assert pages(world, RECORDS) == [*BEFORE, (YOUNGER, None)]


def test_an_earlier_day_that_is_created_comes_before_a_later_one_that_is_updated(requests: Requests) -> None:
    world = requests.world
    clients = [world.glue._client, world.symlinks._client]
    for catalog, client in zip([world.glue, world.symlinks], clients, strict=True):
        database = catalog.database_name(requests.table)
        client.delete_partition(DatabaseName=database, TableName="request", PartitionValues=[ELDER])
        client.meta.events.register(CREATION, _lost)
    bridge(requests)
    assert len(run_catalog(world.context, now=utc(NOW)).errors) == 2
    assert shown(world) == [[(YOUNGER, "cart")], [(YOUNGER, "cart")]]
    for client in clients:
        client.meta.events.unregister(CREATION, _lost)
    world.catalog(NOW)
    assert shown(world) == [BRIDGED, BRIDGED]


def test_symlinks_of_records_go_and_come_again_as_the_file_says(requests: Requests) -> None:
    world = requests.world
    world.apply(a_join_table(lateness="6h"))
    world.catalog(NOW)
    with pytest.raises(WrongUse):
        world.reader().table(LINKED)
    bridge(requests)
    world.apply(a_join_table(lateness="6h") + "symlink: true\n")
    world.catalog(NOW)
    assert shown(world) == [BRIDGED, BRIDGED]


CREATION = "before-call.glue.BatchCreatePartition"


def _lost(**_: Any) -> None:
    raise EndpointConnectionError(endpoint_url="the catalog")
