"""Tables also shown by symlinks: the view of readers of both databases, and the objects each database keeps."""

from __future__ import annotations

import dataclasses
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest
from botocore.exceptions import ClientError

from prism_assets.domain.errors import DefinitionError, ObjectMissing, WrongUse
from prism_assets.publishers.glue import SymlinkPublisher
from prism_assets.publishers.glue_catalog import GlueCatalog
from prism_assets.stages.catalog.preview import preview
from prism_assets.stages.catalog.report import CatalogReport
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.checks.days import CATALOG_AGREES
from prism_assets.stages.checks.run import run_checks
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.findings.registry import find_work
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.rebuild.run import run_rebuild
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.stages.aging import deleted, hours_pass, keys
from prism_assets_tests.stages.catalogs import an_hour_passes, calls_are_over, intents
from prism_assets_tests.world import World

DAY = "2026-03-01"
NOON, AFTER = f"{DAY}T12:00", "2026-03-02T00:10"
EVENTS, LINKED = "log.events", "log_symlink.events"
PLAIN, ASKING = a_table(merge="{interval: 0}"), a_table(merge="{interval: 0}") + "symlink: true\n"
AWAY = "http://127.0.0.1:1"


@pytest.fixture
def linked(world: World) -> World:
    world.apply(ASKING)
    return all_at_once(world)


def all_at_once(world: World) -> World:
    """A platform whose garbage collections delete everything allowed at once."""
    settings = world.settings.model_copy(update={"gc_max_fraction": 1.0})
    return dataclasses.replace(world, context=dataclasses.replace(world.context, settings=settings))


def arrive(world: World, count: int = 4, now: str = NOON) -> list[int]:
    rows = some_rows(count, utc(NOON))
    world.drop(rows)
    world.stream(now)
    return [row["id"] for row in rows]


def close(world: World) -> None:
    world.catalog(NOON)
    world.catalog(AFTER)


def switch(world: World) -> None:
    world.merge(AFTER)
    world.catalog(AFTER)


def is_shown(world: World, table: str) -> bool:
    try:
        world.reader().table(table)
    except WrongUse:
        return False
    return True


def storage(world: World, day: str = DAY) -> Any:
    """Returns Glue's location of a day for readers of symlinks."""
    (table,) = world.context.choose_tables([EVENTS])
    answer = world.symlinks._client.get_partition(
        DatabaseName=world.symlinks.database_name(table), TableName="events", PartitionValues=[day]
    )
    return answer["Partition"]["StorageDescriptor"]


def lists(world: World) -> list[str]:
    return keys(world, "/symlink/")


def agrees(world: World) -> bool:
    """Whether no work is left and no check finds a fault."""
    (outcome,) = run_checks(world.context, [CATALOG_AGREES], now=utc(AFTER), names=[EVENTS], limits={})
    report = run_doctor(world.context, deep=True)
    assert (report.findings, report.unseen) == ((), ())
    assert find_work(world.context, "catalog", now=utc(AFTER)) == []
    assert not world.catalog(AFTER).changed
    return outcome.passed


def without_symlinks(world: World) -> World:
    """The same platform where the service answers for Glue's own database alone."""
    away = SymlinkPublisher(GlueCatalog(AWAY, "us-east-1", fail_fast=True), world.context.lake, world.context.stores)
    return dataclasses.replace(world, context=dataclasses.replace(world.context, symlink_publisher=away))


def catalog(world: World, now: str) -> CatalogReport:
    return run_catalog(world.context, now=utc(now))


def test_both_databases_show_the_same_rows_all_through_the_life_of_a_day(linked: World) -> None:
    ids = arrive(linked)
    linked.catalog(NOON)
    assert storage(linked)["Location"].endswith(f"/live/dt={DAY}/")
    assert storage(linked)["InputFormat"].endswith("MapredParquetInputFormat")
    ids += arrive(linked)
    assert linked.ids(LINKED) == linked.ids(EVENTS) == ids, "readers list the folder of an open day"
    close(linked)
    assert storage(linked)["Location"].endswith(f"/symlink/dt={DAY}/version-{0:019d}-{2:019d}/")
    assert storage(linked)["InputFormat"] == "org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat"
    ids += arrive(linked, now=AFTER)
    linked.catalog(AFTER)
    assert linked.ids(LINKED) == linked.ids(EVENTS) == ids, "rows that came late"
    switch(linked)
    assert storage(linked)["Location"].endswith(f"/version-{3:019d}/")
    assert linked.ids(LINKED) == linked.ids(EVENTS) == ids
    ids += arrive(linked, now=AFTER)
    linked.catalog(AFTER)
    assert linked.ids(LINKED) == linked.ids(EVENTS) == ids
    assert [item.url for item in linked.partition(DAY, LINKED).objects] == [
        item.url for item in linked.partition(DAY, EVENTS).objects
    ]
    assert agrees(linked)


def test_a_folder_holds_one_list_with_an_address_a_line_that_any_reader_can_follow(linked: World) -> None:
    ids = arrive(linked) + arrive(linked)
    close(linked)
    (key,) = lists(linked)
    body = linked.context.stores.get("lake", key).decode()
    assert body.endswith("\n")
    assert all(line.startswith("s3://lake/") and line.endswith(".parquet") for line in body.splitlines())
    assert storage(linked)["Location"] == f"s3://lake/{key.removesuffix('objects.txt')}"
    paths = [str(linked.root / "buckets" / line.removeprefix("s3://")) for line in body.splitlines()]
    with duckdb.connect() as client:
        found = client.execute("SELECT id FROM read_parquet(?) ORDER BY id", [paths]).fetchall()
    assert [number for (number,) in found] == ids


def test_a_folder_with_something_else_in_it_is_not_shown(linked: World) -> None:
    arrive(linked)
    linked.catalog(NOON)
    (table,) = linked.context.choose_tables([EVENTS])
    stray = linked.context.lake.keys(table).symlinks(date.fromisoformat(DAY), 0, 1).replace("objects", "other")
    linked.context.stores.put("lake", stray, b"s3://lake/nothing.parquet\n")
    (report,) = catalog(linked, AFTER).tables
    (problem,) = report.problems
    assert problem.reason.startswith("symlinks: s3://lake/")
    assert "does not hold its list of objects alone" in problem.reason
    assert storage(linked)["Location"].endswith(f"/live/dt={DAY}/")
    linked.context.stores.delete("lake", [stray])
    linked.catalog(AFTER)
    assert "/symlink/" in storage(linked)["Location"]
    assert agrees(linked)


def test_one_catalog_that_fails_for_an_hour_holds_back_no_other(linked: World) -> None:
    ids = arrive(linked)
    linked.catalog(NOON)
    sick = without_symlinks(linked)
    late: list[int] = []
    for _ in range(3):
        late += arrive(sick, now=AFTER)
        sick.merge(AFTER)
        (report,) = catalog(sick, AFTER).tables
        (problem,) = report.problems
        assert problem.reason.startswith(f"symlinks: Glue at {AWAY} does not answer (")
        assert all(problem.transient for problem in report.problems)
        assert linked.ids(EVENTS) == ids + late
        assert linked.ids(LINKED)[: len(ids)] == ids, "rows of a closed day are still to come"
    assert "to be shown by symlinks as it is" in linked.status(DAY, AFTER).findings[-1].says
    assert [item.kind for item in find_work(linked.context, "catalog", now=utc(AFTER))] == ["publish"]
    linked.catalog(AFTER)
    assert linked.ids(EVENTS) == linked.ids(LINKED) == ids + late
    assert agrees(linked)


def test_glue_that_fails_holds_back_no_symlinks(linked: World) -> None:
    ids = arrive(linked)
    linked.catalog(NOON)
    real = linked.glue._client

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            def call(**arguments: Any) -> Any:
                if name.startswith(("batch_update", "batch_create", "update")):
                    raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, name)
                return getattr(real, name)(**arguments)

            return call

    linked.glue._made = Refusing()  # type: ignore[assignment]
    (report,) = catalog(linked, AFTER).tables
    linked.glue._made = real
    assert [problem.reason.startswith("Glue answered AccessDenied") for problem in report.problems] == [True]
    assert [item.location for item in report.symlink.published] == [storage(linked)["Location"]]
    assert "/symlink/" in storage(linked)["Location"]
    assert linked.partition(DAY, EVENTS).location.endswith(f"/live/dt={DAY}/")
    assert linked.ids(EVENTS) == linked.ids(LINKED) == ids
    linked.catalog(AFTER)
    assert agrees(linked)


def test_nothing_is_deleted_that_readers_of_one_catalog_are_still_sent_to(linked: World) -> None:
    ids = arrive(linked) + arrive(linked)
    linked.catalog(NOON)
    close(linked)
    sick = without_symlinks(linked)
    sick.merge(AFTER)
    for _ in range(2):
        catalog(sick, AFTER)
    assert f"part-{0:019d}-{2:019d}-r" in linked.partition(DAY, EVENTS).objects[0].url
    hours_pass(linked, 1_000)
    assert deleted(linked) == {}, "symlinks name the small objects"
    assert linked.ids(LINKED) == linked.ids(EVENTS) == ids
    linked.catalog(AFTER)
    assert deleted(linked) == {}, "readers who were sent to the list of before may be at it"
    hours_pass(linked, 1_000)
    assert deleted(linked) == {"merged": 2, "replaced": 2}
    assert [key.rpartition("/")[0][-19:] for key in lists(linked)] == [f"{2:019d}"]
    assert linked.ids(LINKED) == linked.ids(EVENTS) == ids
    assert agrees(linked)


def test_a_lost_object_that_only_readers_of_symlinks_need_is_found_and_repaired(linked: World) -> None:
    ids = arrive(linked) + arrive(linked)
    close(linked)
    sick = without_symlinks(linked)
    sick.merge(AFTER)
    for _ in range(2):
        catalog(sick, AFTER)
    lost = linked.partition(DAY, LINKED).objects[0].url.removeprefix("s3://lake/")
    linked.context.stores.delete("lake", [lost])
    assert linked.ids(EVENTS) == ids
    (finding,) = run_doctor(linked.context).findings
    assert f"the small object {lost} is missing" in finding.says
    assert run_repair(linked.context).repaired == 1
    assert run_doctor(linked.context).findings == ()
    linked.catalog(AFTER)
    assert linked.ids(LINKED) == linked.ids(EVENTS) == ids
    assert agrees(linked)


def test_while_a_catalog_cannot_say_what_it_shows_nothing_is_deleted(linked: World) -> None:
    arrive(linked)
    close(linked)
    switch(linked)
    hours_pass(linked, 1_000)
    (report,) = run_gc(without_symlinks(linked).context).tables
    assert (report.deleted, len(report.problems)) == ({}, 1)
    assert deleted(linked) == {"merged": 1, "replaced": 2}


def test_a_table_asks_for_symlinks_later_and_all_of_its_days_are_shown(world: World) -> None:
    world.apply(PLAIN)
    ids = arrive(world)
    close(world)
    switch(world)
    assert not is_shown(world, LINKED)
    assert world.apply(ASKING).lines == ("show log.events by symlinks, too, for Athena, Trino and Hive",)
    assert "log.events: symlinks: define it in the catalog" in map(str, preview(world.context, now=utc(AFTER)))
    sick = without_symlinks(world)
    assert len(catalog(sick, AFTER).tables[0].problems) == 1
    world.catalog(AFTER)
    assert world.ids(LINKED) == ids
    assert agrees(world)


def test_a_table_that_asks_no_more_is_forgotten_and_asked_for_again(linked: World) -> None:
    ids = arrive(linked)
    close(linked)
    switch(linked)
    assert linked.apply(PLAIN).lines == (
        "show log.events by symlinks no longer: the next catalog run removes it from that database",
    )
    assert "log.events: symlinks: remove the table from the catalog" in map(
        str, preview(linked.context, now=utc(AFTER))
    )
    assert catalog(without_symlinks(linked), AFTER).tables[0].problems
    assert is_shown(linked, LINKED)
    calls_are_over(linked)
    assert linked.catalog(AFTER).tables[0].symlink.removed == (EVENTS,)
    assert not is_shown(linked, LINKED)
    assert agrees(linked)
    assert deleted(linked) == {}, "readers may be at it"
    hours_pass(linked, 1_000)
    with linked.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_publications SET withdraw_time = withdraw_time - interval '1000 hours'"
        )
    assert deleted(linked)["merged"] == 1
    linked.apply(ASKING)
    linked.catalog(AFTER)
    assert linked.ids(LINKED) == linked.ids(EVENTS) == ids
    assert agrees(linked)


def test_a_call_that_may_still_land_keeps_a_table_from_being_forgotten_for_good(linked: World) -> None:
    arrive(linked)
    close(linked)
    linked.apply(PLAIN)
    with linked.context.database.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO prism_publication_intents (prism_table_id, publisher, lease_token, worker, start_time, "
            "expire_time) SELECT prism_table_id, 'symlink', gen_random_uuid(), 'host:1', now(), now() + interval '1 h' "
            "FROM prism_tables"
        )
    assert linked.catalog(AFTER).tables[0].symlink.removed == ()
    (table,) = linked.context.choose_tables([EVENTS])
    linked.symlinks.define(table, "s3://lake/late/")
    assert [item.kind for item in find_work(linked.context, "catalog", now=utc(AFTER))] == ["compare", "define"]
    calls_are_over(linked)
    assert linked.catalog(AFTER).tables[0].symlink.removed == (EVENTS,)
    assert not is_shown(linked, LINKED)
    assert intents(linked) == 0


def test_what_somebody_else_changed_is_found_and_mended_in_either_catalog(linked: World) -> None:
    ids = arrive(linked)
    close(linked)
    (table,) = linked.context.choose_tables([EVENTS])
    linked.symlinks.publish(table, {date.fromisoformat(DAY): "s3://lake/elsewhere/"})
    (outcome,) = run_checks(linked.context, [CATALOG_AGREES], now=utc(AFTER), names=[EVENTS], limits={})
    assert not outcome.passed
    (finding,) = run_doctor(linked.context).findings
    assert "the catalog of symlinks shows s3://lake/elsewhere/" in finding.says
    an_hour_passes(linked)
    linked.catalog(AFTER)
    assert linked.ids(LINKED) == ids
    assert agrees(linked)


def test_a_missing_list_of_symlinks_is_a_finding_that_republishing_mends(linked: World) -> None:
    ids = arrive(linked)
    close(linked)
    linked.context.stores.delete("lake", lists(linked))
    with pytest.raises(ObjectMissing):
        linked.context.stores.get("lake", f"{Path(storage(linked)['Location']).name}/objects.txt")
    (finding,) = run_doctor(linked.context, deep=True).findings
    assert finding.says.startswith("the list of symlinks ")
    linked.catalog(AFTER, republish=True)
    assert linked.ids(LINKED) == ids
    assert agrees(linked)


def test_expired_days_leave_both_catalogs_before_anything_of_them_is_deleted(world: World) -> None:
    world.apply(ASKING + "retention_days: 2\n")
    world = all_at_once(world)
    arrive(world)
    close(world)
    switch(world)
    later = "2026-03-05T01:00"
    sick = without_symlinks(world)
    assert catalog(sick, later).tables[0].withdrawn == (date.fromisoformat(DAY),)
    assert [item.kind for item in find_work(world.context, "catalog", now=utc(later))] == ["withdraw"]
    hours_pass(world, 1_000)
    with world.context.database.begin() as connection:
        for change in (
            "prism_partitions SET expire_time = expire_time - interval '1000 hours'",
            "prism_publications SET withdraw_time = withdraw_time - interval '1000 hours'",
        ):
            connection.exec_driver_sql(f"UPDATE {change}")
    assert "expired" not in deleted(world)
    assert len(world.ids(LINKED)) == 4
    assert world.catalog(later).tables[0].symlink.withdrawn == (date.fromisoformat(DAY),)
    assert world.reader().table(LINKED).partitions == ()
    hours_pass(world, 1_000)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_publications SET withdraw_time = withdraw_time - interval '1000 hours'"
        )
    assert "expired" in deleted(world)
    assert lists(world) == []


def test_both_databases_show_the_former_name_of_a_table_until_each_has_forgotten_it(linked: World) -> None:
    ids = arrive(linked)
    close(linked)
    path = linked.settings.tables_dir / "events.yaml"
    path.write_text(ASKING.replace("table: events", "table: tours") + "was: log.events\n")
    linked.apply()
    linked.catalog(AFTER)
    assert linked.ids(LINKED) == linked.ids("log_symlink.tours") == linked.ids("log.tours") == ids
    with linked.context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_former_names SET end_time = now() - interval '1 second'")
    sick = without_symlinks(linked)
    assert catalog(sick, AFTER).tables[0].removed == (EVENTS,)
    assert (is_shown(linked, EVENTS), is_shown(linked, LINKED)) == (False, True)
    calls_are_over(linked)
    (report,) = linked.catalog(AFTER).tables
    assert (report.removed, report.symlink.removed) == ((), (EVENTS,))
    assert not is_shown(linked, LINKED)
    assert not linked.catalog(AFTER).changed
    assert linked.ids("log_symlink.tours") == ids


def others(name: str, more: str = "") -> str:
    return a_table(name).replace(f"staging/{name.split('.')[1]}/", "staging/others/") + more


def refusal(world: World, **files: str) -> str:
    for name, text in files.items():
        (world.settings.tables_dir / f"{name}.yaml").write_text(text)
    with pytest.raises(DefinitionError) as raised:
        world.apply()
    return str(raised.value)


def test_a_schema_may_not_have_the_name_of_the_database_of_symlinks(linked: World) -> None:
    said = "log_symlink.events is what readers of symlinks call log.events"
    assert said in refusal(linked, others=others(LINKED))
    assert said in refusal(linked, events=PLAIN), "the catalog still shows it"


def test_a_name_of_before_is_taken_by_symlinks_too(linked: World) -> None:
    linked.catalog(NOON)
    renamed = ASKING.replace("table: events", "table: tours") + "was: log.events\n"
    said = "log_symlink.events is what readers of symlinks call log.tours"
    assert said in refusal(linked, events=renamed, others=others(LINKED)), "both at once"
    (linked.settings.tables_dir / "others.yaml").unlink()
    linked.apply()
    assert said in refusal(linked, others=others(LINKED))
    (linked.settings.tables_dir / "others.yaml").unlink()
    (linked.settings.tables_dir / "events.yaml").write_text(renamed.replace("symlink: true\n", ""))
    linked.apply()
    assert said in refusal(linked, others=others(LINKED)), "until the catalog run behind it"
    (linked.settings.tables_dir / "others.yaml").unlink()
    linked.catalog(NOON)
    assert linked.apply(others(LINKED)).lines[0] == "create table log_symlink.events with 2 columns"


def test_a_table_may_not_ask_for_symlinks_under_a_name_that_it_had_itself(world: World) -> None:
    world.apply(others(LINKED))
    again = others(EVENTS, f"was: {LINKED}\n")
    assert "log_symlink.events is what readers of symlinks call log.events, and log.events has that name" in refusal(
        world, events=f"{again}symlink: true\n"
    )
    assert world.apply(again).lines[0].startswith("rename log_symlink.events to log.events")


def test_a_name_of_a_dropped_column_is_held_until_each_catalog_shows_the_day_that_was_rebuilt(world: World) -> None:
    column = "{name: color, type: string}"
    world.apply(a_table(columns=[column], merge="{interval: 0}") + "symlink: true\n")
    arrive(world)
    close(world)
    switch(world)
    world.apply(ASKING)
    sick = without_symlinks(world)
    assert run_rebuild(world.context, EVENTS, day=date.fromisoformat(DAY), now=utc(AFTER)).errors == ()
    assert catalog(sick, AFTER).tables[0].published
    again = a_table(columns=["{name: color, type: integer}"], merge="{interval: 0}") + "symlink: true\n"
    assert "color was another column, whose values readers of Glue would take" in refusal(world, events=again)
    calls_are_over(world)
    world.catalog(AFTER)
    assert world.apply(again).lines == ("add column color integer to log.events",)
