"""The lease to publish a table: two runs never undo each other, and a motionless run delays nobody."""

from __future__ import annotations

import threading
from datetime import date
from typing import Any

from prism_assets.metadata import leases
from prism_assets.metadata.leases import LeaseKind
from prism_assets.stages.catalog.report import CatalogReport
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.leases import leased, takeover_seconds
from prism_assets.stages.status import read_status
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.catalogs import PausingCatalog, holders_fall_silent, until_true, with_catalog, with_lease
from prism_assets_tests.stages.test_merge import a_closed_day
from prism_assets_tests.stages.test_publish import AFTER, NOON, late_rows, record
from prism_assets_tests.world import World

DAY = date(2026, 3, 1)
HOLDER = "another, since 2"


def columns(world: World, table: str = "log.events") -> list[str]:
    """Returns the columns that readers of the catalog see, of the table and of each partition."""
    client: Any = world.glue
    schema, name = table.split(".")
    where = {"DatabaseName": f"{world.settings.glue_database_prefix}{schema}", "TableName": name}
    found = [client._client.get_table(DatabaseName=where["DatabaseName"], Name=name)["Table"]]
    found += client._client.get_partitions(**where)["Partitions"]
    shown = [[column["Name"] for column in item["StorageDescriptor"]["Columns"]] for item in found]
    assert all(names == shown[0] for names in shown)
    return shown[0]


def test_h7_a_second_run_skips_the_table_the_first_is_at_and_says_who_that_is(world: World) -> None:
    a_closed_day(world)
    late_rows(world)
    second: list[CatalogReport] = []
    first = PausingCatalog(
        world.glue, before_publish=lambda table: second.append(run_catalog(world.context, now=utc(AFTER)))
    )
    assert run_catalog(with_catalog(world, first).context, now=utc(AFTER)).errors == ()
    ((skipped,),) = [report.tables for report in second]
    assert (skipped.skipped, skipped.changed) == (True, False)
    (error,) = second[0].errors
    assert f"log.events: another catalog run is working on it ({HOLDER}" in error
    assert "repeat when that has ended" in error
    assert record(world) == (0, 3)


def test_a_run_waits_for_the_tables_of_another_when_it_has_done_all_others(world: World) -> None:
    for name in ("log.a", "log.b"):
        world.apply(a_table(name))
        world.drop(some_rows(2, utc(NOON)), stream=name.split(".")[1])
    world.stream(NOON)
    (first, _) = world.context.choose_tables(None)
    done: list[str] = []
    catalog = PausingCatalog(world.glue, before_publish=lambda table: done.append(str(table.name)))
    with leased(with_catalog(world, None).context, LeaseKind.CATALOG, [first.table_id]) as held:
        with world.context.database.begin() as connection:
            release = threading.Timer(0.5, lambda: _release(world, held[first.table_id]))
            assert leases.holders(connection, LeaseKind.CATALOG, [first.table_id])
        release.start()
        report = run_catalog(with_catalog(world, catalog, "me").context, now=utc(NOON), wait_seconds=30)
    release.join()
    assert report.errors == ()
    assert [table.table for table in report.tables] == ["log.a", "log.b"]
    assert done == ["log.b", "log.a"]


def _release(world: World, lease: leases.Lease) -> None:
    with world.context.database.begin() as connection:
        leases.release(connection, [lease])


def test_a_holder_that_died_is_overcome_by_whoever_waits_as_long_as_a_lease(world: World) -> None:
    world.apply(a_table())
    (table,) = world.context.choose_tables(None)
    with world.context.database.begin() as connection:
        assert leases.take(connection, LeaseKind.CATALOG, [table.table_id], "dead", 60)
    assert run_catalog(world.context, now=utc(NOON)).tables[0].skipped
    quick = with_lease(world, 1.0)
    report = run_catalog(quick, now=utc(NOON), wait_seconds=takeover_seconds(quick))
    assert report.errors == ()
    assert report.tables[0].defined == "created"


def test_a_holder_that_works_on_is_not_overcome_however_long_it_takes(world: World) -> None:
    world.apply(a_table())
    (table,) = world.context.choose_tables(None)
    with leased(with_lease(with_catalog(world, None), 0.3), LeaseKind.CATALOG, [table.table_id]):
        holders_fall_silent(world)
        until_true(world, "SELECT heartbeat_time > now() - interval '1 minute' FROM prism_leases")
        report = run_catalog(world.context, now=utc(NOON), wait_seconds=0.5)
    assert report.tables[0].skipped
    assert HOLDER in report.errors[0]


def test_status_names_who_publishes_a_table_and_since_when(world: World) -> None:
    world.apply(a_table(), a_table("log.other"))
    (_, other) = world.context.choose_tables(None)
    with leased(with_catalog(world, None).context, LeaseKind.CATALOG, [other.table_id]):
        found = {status.table: status.catalog_holder for status in read_status(world.context, now=utc(NOON))}
    assert found["log.events"] is None
    assert str(found["log.other"]).startswith(HOLDER)
    assert [status.catalog_holder for status in read_status(world.context, now=utc(NOON))] == [None, None]


def test_a_run_that_lost_its_lease_changes_nothing_more(world: World) -> None:
    """It stood still before its call. Another run took over, published more, and ended."""
    a_closed_day(world)
    late_rows(world)

    def take_over(table: object) -> None:
        late_rows(world)
        for _ in range(50):  # it may renew its lease once more between the two
            holders_fall_silent(world)
            report = run_catalog(world.context, now=utc(AFTER))
            if not report.tables[0].skipped:
                break
        assert report.errors == ()

    late = PausingCatalog(world.glue, before_publish=take_over)
    report = run_catalog(with_catalog(world, late).context, now=utc(AFTER))
    assert [problem.transient for problem in report.tables[0].problems] == [True]
    assert "another run has taken this work over" in report.errors[0]
    assert record(world) == (0, 4)
    assert len(world.ids()) == 12


def test_a_run_that_began_before_a_column_came_does_not_take_it_back(world: World) -> None:
    """While the older run is at the first of two tables, a newer one shows a new column of the second."""
    wider = a_table("log.b", columns=["{name: color, type: string}"])
    a_closed_day(world, "log.a")
    a_closed_day(world, "log.b")
    world.drop(some_rows(1, utc(NOON)), stream="a")
    world.stream(AFTER)

    def newer_run(table: object) -> None:
        world.apply(wider)
        assert run_catalog(world.context, now=utc(AFTER), names=["log.b"]).errors == ()

    older = PausingCatalog(world.glue, before_publish=newer_run)
    assert run_catalog(with_catalog(world, older).context, now=utc(AFTER)).errors == ()
    assert columns(world, "log.b") == ["time", "id", "color"]


def test_a_definition_that_is_older_than_the_one_shown_is_refused(world: World) -> None:
    a_closed_day(world)
    world.apply(a_table(columns=["{name: color, type: string}"]))
    world.catalog(AFTER)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_tables SET definition_version = 1")
    (error,) = run_catalog(world.context, now=utc(AFTER)).errors
    assert "version 1 of its definition is in force, and the catalog shows version 2" in error
    assert columns(world) == ["time", "id", "color"]
