"""Objects from before are given their definition, and workers of the version before leave none without one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import tables
from prism_assets.metadata.database import Database
from prism_assets_tests.metadata.rows import DAY, NOON, Rows
from prism_assets_tests.metadata.test_migrations import downgrade
from prism_assets_tests.postgres import PostgresServer

_SMALL = (
    "INSERT INTO prism_small_objects (prism_small_object_id, prism_staging_object_id, prism_partition_id, delayed, "
    "content_length, upload_start_time, row_count, min_time, max_time, fingerprint) OVERRIDING SYSTEM VALUE "
    "VALUES (:id, :staging, :partition, false, 1, now(), 1, now(), now(), 1)"
)
_RANGE = (
    "INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, "
    "fingerprint, create_time, update_time) VALUES (:p, {}, {}, 1, 1, 1, now(), now()) "
    "ON CONFLICT (prism_partition_id, lower_bound) DO UPDATE SET upper_bound = EXCLUDED.upper_bound"
)
_VERSIONS = "SELECT definition_version FROM prism_small_objects ORDER BY prism_small_object_id"


@pytest.fixture
def rows(postgres: PostgresServer) -> Iterator[Rows]:
    url = postgres.create_database()
    made = Database(url)
    yield Rows(made)
    made.dispose()
    postgres.drop_database(url)


def next_version(rows: Rows, table: TableDefinition) -> TableDefinition:
    new = dataclasses.replace(table, version=table.version + 1)
    with rows.database.begin() as connection:
        tables.save_version(connection, new, NOON)
    return new


def claimed_under(rows: Rows, table: TableDefinition) -> int:
    """A staging object that is converted under this definition."""
    (staging,) = rows.staging(table)
    claimed = "UPDATE prism_staging_objects SET definition_version = :v, first_batch_id = 1"
    rows.sql(f"{claimed} WHERE prism_staging_object_id = :s", v=table.version, s=staging)
    return staging


def test_objects_from_before_get_the_definition_that_they_were_written_under(rows: Rows) -> None:
    """Also where their ids lie far apart: they are filled a part at a time."""
    old = rows.table()
    new = next_version(rows, old)
    partition = rows.partition(new)
    staging = [claimed_under(rows, table) for table in (old, new, old)]
    downgrade(rows, "0020")
    for number, staging_id in zip((3, 60_000, 170_000), staging, strict=True):
        rows.sql(_SMALL, id=number, staging=staging_id, partition=partition)
    for lower, upper in (("NULL", 0), (0, 3)):
        rows.sql(_RANGE.format(lower, upper), p=partition)
    rows.database.migrate()
    assert rows.sql(_VERSIONS) == [(1,), (2,), (1,)]
    assert rows.sql("SELECT definition_version FROM prism_merge_ranges ORDER BY upper_bound") == [(None,), (2,)]
    assert rows.sql("SELECT definition_version FROM prism_lake_mappings ORDER BY mapping_id") == [(1,), (2,)]
    valid = "SELECT bool_and(convalidated) FROM pg_constraint WHERE conname LIKE 'prism%definition'"
    assert rows.value(valid)
    downgrade(rows, "0020")
    rows.database.migrate()
    assert rows.sql(_VERSIONS) == [(1,), (2,), (1,)]


def test_a_worker_of_the_version_before_commits_under_the_definition_of_its_staging_object(rows: Rows) -> None:
    old = rows.table()
    new = next_version(rows, old)
    partition = rows.partition(new, DAY)
    rows.sql(_SMALL, id=1, staging=claimed_under(rows, old), partition=partition)
    rows.sql(_SMALL, id=2, staging=claimed_under(rows, new), partition=partition)
    assert rows.sql(_VERSIONS) == [(1,), (2,)]


def test_a_merge_of_the_version_before_may_add_a_range_and_extend_none(rows: Rows) -> None:
    """The columns of later objects would be null in what it extended, as the range is of the definition before."""
    table = rows.table()
    partition = rows.partition(table)
    for lower, upper in (("NULL", 0), (0, 3)):
        rows.sql(_RANGE.format(lower, upper), p=partition)
    assert rows.sql("SELECT definition_version FROM prism_merge_ranges ORDER BY upper_bound") == [(None,), (1,)]
    with pytest.raises(InvariantBroken, match="stop all workers of older versions"):
        rows.sql(_RANGE.format(0, 7), p=partition)
    assert rows.value("SELECT max(upper_bound) FROM prism_merge_ranges") == 3


def test_a_definition_has_its_mapping_in_the_transaction_that_stores_it(rows: Rows) -> None:
    table = rows.table()
    before = rows.value("SELECT max(mapping_id) FROM prism_lake_mappings")
    new = dataclasses.replace(table, version=2)
    with rows.database.begin() as connection:
        tables.save_version(connection, new, NOON)
        connection.rollback()
    assert rows.value("SELECT max(mapping_id) FROM prism_lake_mappings") == before
    next_version(rows, table)
    schema, following = rows.sql("SELECT schema_version, next_file_id FROM prism_lake.ducklake_snapshot")[0]
    assert schema > before
    assert following == schema + 1
