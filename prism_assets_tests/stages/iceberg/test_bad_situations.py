"""Catalogs that are down or refuse, taken names, lost metadata, and a restored PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy
from pydantic import SecretStr
from pyiceberg.exceptions import NamespaceAlreadyExistsError
from pyiceberg.schema import Schema

from prism_assets.domain.iceberg.snapshots import ACTIVE, FAILED
from prism_assets.platform import build_context
from prism_assets.reading.iceberg_reader import IcebergReader
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.stages.iceberg.clients import a_client, a_stranger, with_iceberg
from prism_assets_tests.stages.iceberg.days import (
    AFTER,
    NOON,
    TABLE,
    attempt,
    dirty_days,
    is_sound,
    published,
    reasons,
    recorded,
    streamed,
)
from prism_assets_tests.world import World


def url_of(world: World) -> sqlalchemy.URL:
    return sqlalchemy.make_url(world.settings.database_url.get_secret_value())


def shown(url: sqlalchemy.URL) -> str:
    return url.render_as_string(hide_password=False)


def test_a_catalog_that_is_down_is_told_in_one_sentence_and_glue_goes_on(world: World) -> None:
    ids = published(world)
    ids += streamed(world)
    down = with_iceberg(world, url=shown(url_of(world).set(host="127.0.0.1", port=1)))

    report = attempt(down, AFTER)

    (problem,) = report.problems
    assert problem.reason.startswith("could not load the Iceberg table of log.events: connection failed")
    assert "\n" not in problem.reason
    assert str(url_of(world).password) not in problem.reason
    assert problem.transient
    down.catalog(AFTER)
    down.catalog(AFTER)
    assert down.ids() == ids
    assert reasons(attempt(world, AFTER)) == []
    assert is_sound(world, ids)


@contextmanager
def a_role(world: World, grants: str) -> Iterator[str]:
    """Returns the URL of a role with these grants on the catalog's tables."""
    role = f"reader_{url_of(world).database}"
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {role} LOGIN PASSWORD 'reader'")
        for table in ("iceberg_tables", "iceberg_namespace_properties"):
            connection.exec_driver_sql(f"GRANT {grants} ON {table} TO {role}")
    try:
        yield shown(url_of(world).set(username=role, password="reader"))
    finally:
        with world.context.database.begin() as connection:
            connection.exec_driver_sql(f"DROP OWNED BY {role}")
            connection.exec_driver_sql(f"DROP ROLE {role}")


def test_a_role_without_the_right_to_commit_is_told_which_right_it_lacks(world: World) -> None:
    ids = published(world)
    before = recorded(world)
    ids += streamed(world)
    with a_role(world, "SELECT, INSERT") as url:
        (problem,) = attempt(with_iceberg(world, url=url)).problems
    assert "could not commit to the Iceberg table of log.events: permission denied" in problem.reason
    assert "give this role the right" in problem.reason
    assert not problem.transient
    assert recorded(world) == before
    assert reasons(attempt(world)) == []
    assert is_sound(world, ids)


def test_a_role_without_the_right_to_make_tables_makes_none(world: World) -> None:
    world.apply(TABLE)
    ids = streamed(world)
    with a_role(world, "SELECT") as url:
        (told,) = reasons(attempt(with_iceberg(world, url=url)))
    assert "could not register the Iceberg table of log.events: permission denied" in told
    assert reasons(attempt(world)) == []
    assert is_sound(world, ids)


def metadata_files(world: World) -> list[Path]:
    found = (world.root / "buckets" / "lake").rglob("iceberg/metadata/*")
    return sorted(path for path in found if path.is_file())


def current_metadata(world: World) -> Path:
    location = recorded(world).metadata_location
    assert location is not None
    return world.root / "buckets" / location.removeprefix("s3://")


def lose_the_pointer(world: World) -> None:
    a_stranger(world, "drop")


def lose_the_current_file(world: World) -> None:
    current_metadata(world).unlink()


def lose_every_file(world: World) -> None:
    for path in metadata_files(world):
        path.unlink()


def lose_everything(world: World) -> None:
    lose_the_pointer(world)
    lose_every_file(world)


def lose_the_pointer_and_a_manifest(world: World) -> None:
    lose_the_pointer(world)
    next(path for path in metadata_files(world) if path.match("*-m0.avro")).unlink()


def lose_the_pointer_and_a_data_file(world: World) -> None:
    """Loses a file still in snapshots but not in the days, as by gc after a restore of PostgreSQL."""
    streamed(world)
    attempt(world)
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(
            "DELETE FROM prism_small_objects WHERE prism_small_object_id = "
            "(SELECT max(prism_small_object_id) FROM prism_small_objects)"
        )
    last = max((world.root / "buckets" / "lake").rglob("live/**/*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    last.unlink()
    lose_the_pointer(world)


LOSSES: Mapping[str, Callable[[World], None]] = {
    "the pointer": lose_the_pointer,
    "the current metadata file": lose_the_current_file,
    "every file": lose_every_file,
    "the pointer and every file": lose_everything,
    "the pointer and a manifest": lose_the_pointer_and_a_manifest,
    "the pointer and a data file": lose_the_pointer_and_a_data_file,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_table_that_lost_something_shows_all_rows_again_after_the_next_run(world: World, loss: str) -> None:
    ids = published(world)
    uuid = world.iceberg_table().metadata.table_uuid
    LOSSES[loss](world)
    ids += streamed(world)

    report = attempt(world)

    assert (reasons(report), report.created) == ([], True)
    assert is_sound(world, ids)
    assert (world.iceberg_table().metadata.table_uuid == uuid) == (loss == "the pointer")
    assert recorded(world).table_uuid == str(world.iceberg_table().metadata.table_uuid)
    assert not attempt(world).changed
    assert dirty_days(world) == 0


@pytest.mark.parametrize("gone", ["*-m0.avro", "snap-*.avro"])
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_a_head_that_cannot_be_read_is_told_and_keeps_no_other_table_waiting(world: World, gone: str, how: str) -> None:
    published(world)
    world.apply(a_table("log.views", iceberg="true"))
    world.drop(some_rows(2, utc(NOON)), stream="views")
    world.stream(NOON)
    world.catalog(AFTER)
    world.merge(AFTER, everything=True)
    for path in metadata_files(world):
        if path.match(gone):
            path.unlink() if how == "missing" else path.write_bytes(b"Obj\x01 damaged")
    events, views = run_iceberg(world.context, now=utc(AFTER), ignore_pace=True).tables
    (told,) = reasons(events)
    assert (
        f"the manifests of the Iceberg table {recorded(world).identifier}: " in told
        or "manifests of log.events" in told
    )
    assert reasons(views) == []
    assert world.iceberg_table("log.views").scan().to_arrow().num_rows == 2


def keep(world: World, tables: Sequence[str]) -> None:
    """Copies the current rows of PostgreSQL tables."""
    with world.context.database.begin() as connection:
        for name in tables:
            connection.exec_driver_sql(f"CREATE TABLE kept_{name} AS SELECT * FROM {name}")


def put_back(world: World, tables: Sequence[str]) -> None:
    """Restores the copied rows."""
    with world.context.database.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        for name in tables:
            connection.exec_driver_sql(f"DELETE FROM {name}")
            connection.exec_driver_sql(f"INSERT INTO {name} OVERRIDING SYSTEM VALUE SELECT * FROM kept_{name}")
            connection.exec_driver_sql(f"DROP TABLE kept_{name}")


RECORDS = ("prism_iceberg_tables", "prism_publications")
EVERYTHING = (*RECORDS, "prism_staging_objects", "prism_small_objects", "prism_partitions")


def test_records_that_went_back_are_made_good_by_comparing(world: World) -> None:
    ids = published(world)
    keep(world, RECORDS)
    ids += streamed(world)
    attempt(world)
    put_back(world, RECORDS)

    assert reasons(attempt(world)) == []

    assert is_sound(world, ids)
    assert recorded(world).state == ACTIVE
    assert dirty_days(world) == 0


def test_a_merge_whose_record_went_back_is_found(world: World) -> None:
    ids = published(world)
    keep(world, RECORDS)
    world.catalog(AFTER)
    world.merge(AFTER, everything=True)
    attempt(world, AFTER)
    put_back(world, RECORDS)
    report = attempt(world, AFTER)
    assert (report.commit, reasons(report)) == (None, [])
    assert is_sound(world, ids)
    assert not attempt(world, AFTER).changed


def test_a_record_that_went_back_to_a_tagged_snapshot_is_not_taken_for_a_table_set_back(world: World) -> None:
    ids = published(world)
    with a_client(world) as (_, table):
        table.manage_snapshots().create_tag(table.metadata.snapshots[-1].snapshot_id, "report").commit()
    keep(world, RECORDS)
    for _ in range(2):
        ids += streamed(world)
        attempt(world)
    a_stranger(world, "expire")  # and with it what lies between the tag and the head
    put_back(world, RECORDS)

    assert reasons(attempt(world)) == []

    assert is_sound(world, ids)


def test_postgresql_restored_to_an_older_state_is_what_readers_see_and_rows_come_back_with_their_objects(
    world: World,
) -> None:
    old = published(world)
    keep(world, EVERYTHING)
    new = streamed(world)
    attempt(world)
    assert world.iceberg_ids() == old + new
    put_back(world, EVERYTHING)

    assert reasons(attempt(world)) == []
    assert is_sound(world, old)
    world.stream(NOON)
    assert reasons(attempt(world)) == []
    assert is_sound(world, old + new)


def test_a_name_that_is_taken_is_left_to_its_owner_until_it_is_free(world: World) -> None:
    world.apply(TABLE)
    ids = streamed(world)
    (table,) = world.context.choose_tables(["log.events"])
    database, name = world.context.iceberg.identifier(table)
    with IcebergReader(world.settings) as reader:
        with suppress(NamespaceAlreadyExistsError):
            reader.catalog.create_namespace(database)
        theirs = reader.catalog.create_table((database, name), Schema(), location="s3://lake/theirs")
        for _ in range(2):
            (told,) = reasons(attempt(world))
            assert "that this installation did not make: move it away" in told
            assert recorded(world).state == FAILED
        assert reader.catalog.load_table((database, name)).metadata.table_uuid == theirs.metadata.table_uuid
        reader.catalog.rename_table((database, name), (database, "theirs"))
    assert reasons(attempt(world)) == []
    assert recorded(world).state == ACTIVE
    assert is_sound(world, ids)


@pytest.fixture
def other(world: World, postgres: PostgresServer) -> Iterator[World]:
    """Another installation in the same bucket, with Iceberg tables of the same names."""
    url = postgres.create_database()
    settings = world.settings.model_copy(update={"database_url": SecretStr(url), "prefix": "other/"})
    made = World(world.root, settings, build_context(settings))
    try:
        yield made
    finally:
        made.close()
        postgres.drop_database(url)


def test_two_installations_do_not_publish_one_table(world: World, other: World) -> None:
    ids = published(world)
    other.apply(TABLE)
    intruder = with_iceberg(other, url=shown(url_of(world)))

    (told,) = reasons(attempt(intruder))

    assert "that this installation did not make" in told
    ids += streamed(world)
    assert reasons(attempt(world)) == []
    assert is_sound(world, ids)


def test_taking_iceberg_out_of_the_file_takes_the_table_out_of_the_catalog_and_leaves_every_object(
    world: World,
) -> None:
    ids = published(world)
    before = metadata_files(world)
    world.apply(a_table(merge="{interval: 0}"))
    assert attempt(world).dropped
    assert metadata_files(world) == before
    with IcebergReader(world.settings) as reader:
        assert reader.catalog.list_tables(f"{world.settings.glue_database_prefix}log_iceberg") == []
    world.apply(TABLE)
    ids += streamed(world)
    attempt(world)
    assert is_sound(world, ids)


def test_a_table_of_others_is_not_taken_out_of_the_catalog(world: World) -> None:
    published(world)
    a_stranger(world, "recreate")
    world.apply(a_table(merge="{interval: 0}"))
    assert attempt(world).dropped
    with a_client(world) as (_, table):
        assert table.current_snapshot() is None
