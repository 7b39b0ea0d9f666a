"""Apply: planned changes, refused changes, and tables it leaves alone."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest

from prism_assets.domain.errors import DefinitionError
from prism_assets.domain.names import TableName
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.tables.changes import AddStream
from prism_assets.metadata.database import Database
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores
from prism_assets.stages.apply.looks import look_at_streams
from prism_assets.stages.apply.plan import ApplyPlan, TablePlan
from prism_assets.stages.apply.run import run_apply
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.metadata.test_schema import tables_of
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.world import World

STREAM = Stream(name="events", bucket="staging", key_prefix="events/")
COLOR = "{name: color, type: string}"


def rows(world: World, sql: str) -> list[tuple[Any, ...]]:
    with world.context.database.begin() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql).all()]


def columns(world: World) -> list[tuple[Any, ...]]:
    return rows(world, "SELECT column_id, name FROM prism_table_columns ORDER BY column_id")


def one_row(world: World) -> None:
    """Converts one object, so that the columns of the table have stored values."""
    world.drop(some_rows(1, utc("2026-03-01T12:00")))
    world.stream("2026-03-01T12:00")


def refusal(world: World, *files: str) -> str:
    with pytest.raises(DefinitionError) as raised:
        world.apply(*files)
    return str(raised.value)


def test_a_new_table_is_planned_with_its_streams(world: World) -> None:
    assert world.apply(a_table()).lines == (
        "take s3://lake/ as the lake of this database",
        "create table log.events with 2 columns",
        "create stream events of log.events at s3://staging/events/",
    )
    assert columns(world) == [(1, "time"), (2, "id")]


def test_applying_the_same_files_again_plans_nothing(world: World) -> None:
    world.apply(a_table())
    assert world.apply().lines == ()
    assert rows(world, "SELECT count(*) FROM prism_table_definitions") == [(1,)]


def test_an_added_column_gets_the_next_id_and_the_others_keep_theirs(world: World) -> None:
    world.apply(a_table())
    assert world.apply(a_table(columns=[COLOR])).lines == ("add column color string to log.events",)
    assert columns(world) == [(1, "time"), (2, "id"), (3, "color")]
    assert rows(world, "SELECT definition_version FROM prism_tables") == [(2,)]


def test_the_order_of_columns_may_change_and_the_ids_go_with_the_names(world: World) -> None:
    world.apply(a_table(columns=[COLOR, "{name: size, type: bigint}"]))
    plan = world.apply(a_table(columns=["{name: size, type: bigint}", COLOR]))
    assert plan.lines == ("reorder the columns of log.events: time, id, size, color",)
    assert columns(world) == [(1, "time"), (2, "id"), (3, "color"), (4, "size")]
    (definition,) = world.context.choose_tables(["log.events"])
    assert [column.column_id for column in definition.columns] == [1, 2, 4, 3]


def test_the_id_of_a_dropped_column_is_never_given_again(world: World) -> None:
    world.apply(a_table(columns=[COLOR]))
    assert world.apply(a_table(columns=["{name: size, type: bigint}"])).lines == (
        "drop column color of log.events: readers no longer see it; objects keep its values, and the name stays taken, "
        "until their days are rebuilt",
        "add column size bigint to log.events",
    )
    world.apply(a_table(columns=[COLOR, "{name: size, type: bigint}"]))
    assert columns(world) == [(1, "time"), (2, "id"), (3, "color"), (4, "size"), (5, "color")]
    assert rows(world, "SELECT column_id FROM prism_table_columns WHERE drop_time IS NOT NULL") == [(3,)]


def test_a_longer_text_is_named(world: World) -> None:
    world.apply(a_table(columns=["{name: color, type: string, length: 20}"]))
    plan = world.apply(a_table(columns=["{name: color, type: string, length: 40}"]))
    assert plan.lines == ("lengthen column color of log.events from 20 to 40 bytes",)
    assert rows(world, "SELECT length FROM prism_table_columns WHERE name = 'color'") == [(40,)]


def test_a_changed_setting_is_named(world: World) -> None:
    world.apply(a_table())
    assert world.apply(a_table(merge="{interval: 60}")).lines == ("update log.events: merge",)
    assert rows(world, "SELECT merge_interval FROM prism_tables") == [(60,)]


def test_a_column_and_a_setting_changed_at_once_are_both_named(world: World) -> None:
    world.apply(a_table())
    assert world.apply(a_table(columns=[COLOR], merge="{interval: 60}")).lines == (
        "add column color string to log.events",
        "update log.events: merge",
    )


def test_a_stream_no_longer_in_the_file_is_disabled_and_not_lost(world: World) -> None:
    world.apply(a_table())
    world.apply(a_table().replace("staging/events/", "staging/new/"))
    assert rows(world, "SELECT key_prefix, enabled FROM prism_streams ORDER BY 1") == [
        ("events/", False),
        ("new/", True),
    ]


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (
            a_table(columns=["{name: color, type: string, length: 100}"]),
            "11: columns[2].name: color has the length 65535, which values in objects may have, and cannot be cut to "
            "100; add a",
        ),
        (
            a_table(columns=["{name: color, type: bigint}"]),
            "11: columns[2].name: color is string and cannot become bigint; add a",
        ),
        (
            a_table(columns=[COLOR], timezone="Asia/Tokyo"),
            "1: partition: column and timezone decide where stored rows lie",
        ),
        (
            a_table(columns=[COLOR, "{name: at, type: date}"]).replace("column: time", "column: at"),
            "1: partition: column and timezone decide where stored rows lie",
        ),
    ],
    ids=["a shorter text", "another type", "another zone", "another partition column"],
)
def test_what_would_make_stored_rows_unreadable_is_refused(world: World, after: str, message: str) -> None:
    world.apply(a_table(columns=[COLOR]))
    one_row(world)
    assert f"events.yaml:{message}" in refusal(world, after)
    assert rows(world, "SELECT definition_version FROM prism_tables") == [(1,)]


def test_another_precision_is_another_type(world: World) -> None:
    world.apply(a_table(columns=['{name: price, type: "decimal(12, 4)"}']))
    one_row(world)
    assert "price is decimal" in refusal(world, a_table(columns=['{name: price, type: "decimal(13, 5)"}']))


def test_all_refusals_are_told_at_once(world: World) -> None:
    world.apply(a_table(columns=[COLOR, "{name: size, type: bigint}"]))
    one_row(world)
    told = refusal(
        world, a_table(columns=["{name: size, type: real}", "{name: color, type: json}"], timezone="Asia/Tokyo")
    )
    assert len(told.splitlines()) == 3


def test_one_bad_file_stops_all_of_them(world: World) -> None:
    assert "color is not a column type" in refusal(
        world, a_table("log.good"), a_table(columns=["{name: hue, type: color}"])
    )
    assert rows(world, "SELECT count(*) FROM prism_tables") == [(0,)]


@pytest.mark.parametrize("inner", ["staging/events/inner/", "staging/"])
def test_streams_that_contain_each_other_are_refused(world: World, inner: str) -> None:
    other = a_table("log.other").replace("staging/other/", inner)
    assert "overlaps s3://staging/" in refusal(world, a_table(), other)


def test_streams_at_one_prefix_are_refused_without_routes(world: World) -> None:
    other = a_table("log.other").replace("staging/other/", "staging/events/")
    told = refusal(world, a_table(), other)
    assert "s3://staging/events/ of log.events is read by log.other, too: say `route:" in told
    (world.settings.tables_dir / "other.yaml").unlink()
    world.apply(a_table())
    (world.settings.tables_dir / "events.yaml").unlink()
    assert "s3://staging/events/ of log.other is read by log.events, too: say `route:" in refusal(world, other)


@pytest.mark.parametrize("inner", ["staging/events/inner/", "staging/"])
def test_a_stream_that_contains_one_of_a_table_whose_file_is_elsewhere_is_refused(world: World, inner: str) -> None:
    world.apply(a_table())
    (world.settings.tables_dir / "events.yaml").unlink()
    told = refusal(world, a_table("log.other").replace("staging/other/", inner))
    assert "another table" in told


def test_two_files_for_one_table_are_refused(world: World) -> None:
    folder = world.settings.tables_dir
    folder.mkdir()
    (folder / "twin.yml").write_text(a_table())
    assert "log.events is also defined in" in refusal(world, a_table())


def test_a_file_that_is_not_utf8_is_told(world: World) -> None:
    world.settings.tables_dir.mkdir()
    (world.settings.tables_dir / "bad.yaml").write_bytes(b"schema: \xff\n")
    assert refusal(world).endswith("bad.yaml:1: the file is not UTF-8")


def test_a_folder_named_like_a_file_is_no_table(world: World) -> None:
    (world.settings.tables_dir / "odd.yaml").mkdir(parents=True)
    assert len(world.apply(a_table()).tables) == 1


def test_a_folder_that_is_not_there_is_wrong_use(world: World, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="is not a folder"):
        run_apply(world.context, tmp_path / "nothing", utc("2026-03-01T00:00"))


def test_a_dry_run_tells_the_plan_and_changes_nothing(world: World) -> None:
    world.apply(a_table())
    path = world.settings.tables_dir / "events.yaml"
    path.write_text(a_table(columns=[COLOR]))
    now = utc("2026-03-01T00:00")
    plan = run_apply(world.context, world.settings.tables_dir, now, dry_run=True)
    assert plan.lines == ("add column color string to log.events",)
    assert columns(world) == [(1, "time"), (2, "id")]
    assert run_apply(world.context, world.settings.tables_dir, now).lines == plan.lines


def test_a_dry_run_on_an_empty_database_makes_no_tables(world: World, postgres: PostgresServer) -> None:
    url = postgres.create_database()
    database = Database(url)
    try:
        with database.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        world.settings.tables_dir.mkdir()
        (world.settings.tables_dir / "events.yaml").write_text(a_table())
        context = dataclasses.replace(world.context, database=database)
        plan = run_apply(context, world.settings.tables_dir, utc("2026-03-01T00:00"), dry_run=True)
        assert len(plan.lines) == 3
        assert tables_of(database) == set()
        assert list(world.context.stores.list("lake", "")) == []
    finally:
        database.dispose()
        postgres.drop_database(url)


def test_a_table_of_before_loses_fields_that_did_nothing_at_the_next_apply(world: World) -> None:
    """Until then the stored definition is in use."""
    world.apply(a_table())
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "UPDATE prism_table_definitions SET definition = jsonb_set("
            "jsonb_set(definition, '{retention_days}', '400'), '{columns,1,zone_offset}', '\"-05:00\"')"
        )
    world.drop(some_rows(2, utc("2026-03-01T12:00")))
    assert world.stream("2026-03-01T12:00").rows_out == 2
    assert world.apply().lines == ("keep all unexpired days of log.events", "update log.events: columns")
    assert world.apply().lines == ()


def test_tables_in_force_without_a_file_are_named_and_go_on(world: World) -> None:
    world.apply(a_table(), a_table("log.others"), a_table("log.old"))
    assert world.apply().notices == ()
    retired = a_table("log.old")
    world.apply(retired.replace(retired[retired.index("streams:") : retired.index("partition:")], "retired: true\n"))
    for name in ("others", "old"):
        (world.settings.tables_dir / f"{name}.yaml").unlink()
    plan = world.apply()
    assert plan.lines == ()
    (notice,) = plan.notices
    assert notice.startswith(
        "1 table is in force without a file, and unchanged: log.others. Their streams are still read"
    )
    (world.settings.tables_dir / "events.yaml").unlink()
    assert "2 tables are in force without a file, and unchanged: log.events, log.others." in world.apply().notices[0]
    assert [str(table.name) for table in world.context.choose_tables(None)] == ["log.events", "log.old", "log.others"]


def test_a_table_whose_file_says_its_former_name_has_a_file(world: World) -> None:
    world.apply(a_table())
    (world.settings.tables_dir / "events.yaml").unlink()
    renamed = a_table("log.news").replace("news", "events").replace("table: events", "table: news")
    assert world.apply(f"{renamed}was: log.events\n").notices == ()


def test_the_plan_says_which_tables_dagster_does_not_know_before_a_reload(world: World) -> None:
    plan = world.apply(a_table(), a_table("log.others"))
    assert plan.reload is not None
    assert plan.reload.startswith(
        "Dagster runs nothing for log.events, log.others until it loads the definitions again"
    )
    assert world.apply(a_table(columns=["{name: more, type: bigint}"])).reload is None


def looks(world: World, *files: str) -> tuple[str, ...]:
    return world.apply(*files).looks


def test_a_slip_in_the_prefix_of_a_stream_is_told_with_what_lies_beside_it(world: World) -> None:
    for _ in range(25):
        world.drop(some_rows(1, utc("2026-03-01T12:00")), stream="nginx")
    world.drop(some_rows(1, utc("2026-03-01T12:00")), stream="zebra")
    assert looks(world, a_table("log.ngnix")) == (
        "stream ngnix of log.ngnix: 0 objects at s3://staging/ngnix/; beside it lie nginx/ with 25, zebra/ with 1",
    )
    assert looks(world) == (), "a stream is looked at when it is new"


def test_a_slip_high_up_in_a_prefix_is_told_with_the_folders_there(world: World) -> None:
    world.drop(some_rows(1, utc("2026-03-01T12:00")), stream="logs/nginx")
    table = a_table().replace("staging/events/", "staging/log/nginx/2026/")
    assert looks(world, table) == (
        "stream events of log.events: 0 objects at s3://staging/log/nginx/2026/; beside it lies logs/ with 1",
    )


def test_a_stream_with_objects_is_not_spoken_of(world: World) -> None:
    world.drop(some_rows(1, utc("2026-03-01T12:00")))
    assert looks(world, a_table()) == ()


def test_an_empty_bucket_and_objects_that_are_all_left_out_are_told(world: World) -> None:
    assert looks(world, a_table()) == (
        "stream events of log.events: 0 objects at s3://staging/events/; there is no folder in bucket staging",
    )
    world.drop([], stream="more/_temporary", body=b"x")
    assert looks(world, a_table("log.more")) == (
        "stream more of log.more: no object to read at s3://staging/more/: 1 object left out (1 with a name that "
        "begins with _ or .)",
    )


def test_a_bucket_that_is_missing_is_told_and_the_table_is_applied_all_the_same(world: World) -> None:
    (said,) = looks(world, a_table(bucket="nowhere"))
    assert said.startswith("stream events of log.events: bucket nowhere does not exist: ")
    assert said.endswith("; the stream is in force all the same, and finds nothing until then")
    assert rows(world, "SELECT stream_name FROM prism_streams") == [("events",)]


def test_a_dry_run_looks_before_anything_is_in_force(world: World) -> None:
    world.settings.tables_dir.mkdir()
    (world.settings.tables_dir / "events.yaml").write_text(a_table(bucket="nowhere"))
    plan = run_apply(world.context, world.settings.tables_dir, utc("2026-03-01T00:00"), dry_run=True)
    assert len(plan.looks) == 1


def test_a_store_that_does_not_answer_is_told_and_raises_nothing() -> None:
    config = StoreConfig(endpoint="http://127.0.0.1:9", retry_seconds=0, object_tags=False)
    plan = ApplyPlan((TablePlan(TableName("log", "events"), None, (AddStream(STREAM),)),))
    (said,) = look_at_streams(Stores(config), plan)
    assert said.startswith(
        "stream events of log.events: s3://staging/events/ was not looked at, as the store did not answer: "
    )


def test_folders_of_a_real_bucket_are_found_by_one_request(world: World, services: Mapping[str, str]) -> None:
    endpoint, bucket = services["MOTO_ENDPOINT"], f"bucket-{random.getrandbits(40):x}"
    s3: Any = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    s3.create_bucket(Bucket=bucket)
    for key in ("logs/nginx/1.gz", "logs/nginx/2.gz", "logs/app/1.gz"):
        s3.put_object(Bucket=bucket, Key=key, Body=b"x")
    there = world.in_bucket(endpoint, bucket)
    table = a_table(bucket=bucket).replace(f"{bucket}/events/", f"{bucket}/logs/ngnix/")
    assert there.apply(table).looks == (
        f"stream events of log.events: 0 objects at s3://{bucket}/logs/ngnix/; "
        "beside it lie logs/nginx/ with 2, logs/app/ with 1",
    )
    gone = a_table("log.gone", bucket=f"{bucket}-gone")
    assert "does not exist: create it or correct its name; the stream is in force" in there.apply(gone).looks[0]
