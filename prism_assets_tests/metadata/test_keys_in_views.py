"""`domain/files/keys.py` and the views for clients of DuckLake each build keys: they must be the same keys."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import get_args

import pytest
from sqlalchemy import Connection

from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.files.keys import (
    ManifestKey,
    MergedObjectKey,
    ObjectKey,
    QuarantineKey,
    RecordKey,
    SmallObjectKey,
    SpoolKey,
    SymlinkKey,
    TableKeys,
)
from prism_assets.domain.names import TableName
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.records import record_objects
from prism_assets_tests.metadata.rows import DAY, Rows

LARGE = 7_000_000_000_000_000_000
"""An id with all of the 19 digits that keys have room for."""


def test_every_kind_of_key_is_held_against_the_views_or_known_to_be_in_none() -> None:
    in_no_view = {ManifestKey, SymlinkKey, QuarantineKey, SpoolKey}
    assert set(get_args(ObjectKey)) == set(KINDS) | in_no_view


@pytest.mark.parametrize("kind", [SmallObjectKey, MergedObjectKey, RecordKey])
@pytest.mark.parametrize("prefix", ["", "lakes/one/"], ids=["no prefix", "a prefix"])
@pytest.mark.parametrize("physical", [False, True], ids=["own names", "names from before a rename"])
def test_views_name_the_objects_under_the_keys_that_python_builds(
    rows: Rows, kind: type[ObjectKey], prefix: str, physical: bool
) -> None:
    table = a_shown_table(rows, prefix, physical=physical)
    keys = TableKeys("lake", prefix, table.name)
    insert, load = KINDS[kind]
    partition_id = rows.partition(table)
    insert(rows, table, partition_id)
    with rows.database.begin() as connection:
        built = [item.key for item in load(connection, keys, partition_id)]
    shown = rows.sql(
        "SELECT t.path || f.path FROM prism_lake.ducklake_data_file f JOIN prism_lake.ducklake_table t USING (table_id)"
    )
    assert len(built) > 2
    assert sorted(path for (path,) in shown) == sorted(f"s3://lake/{key}" for key in built)
    assert {type(keys.parse(key)) for key in built} == {kind}


def a_shown_table(rows: Rows, prefix: str, *, physical: bool) -> TableDefinition:
    table = rows.table()
    rows.sql(
        "INSERT INTO prism_installation (installation_id, bucket_name, key_prefix, endpoint, create_time) "
        "VALUES ('i', 'lake', :prefix, 'https://s3', now())",
        prefix=prefix,
    )
    if not physical:
        return table
    rows.sql("UPDATE prism_tables SET physical_schema_name = 'old', physical_table_name = 'visits'")
    name = TableName(table.name.schema, table.name.table, "old", "visits")
    return replace(table, name=name)


def insert_small_objects(rows: Rows, table: TableDefinition, partition_id: int) -> None:
    """Small objects of both tiers: of first and later starts, rewritten or not, with small and large ids."""
    for count, first in ((6, None), (2, LARGE)):
        if first:
            rows.sql(
                "SELECT setval(pg_get_serial_sequence('prism_staging_objects', 'prism_staging_object_id'), :n)", n=first
            )
        rows.small(table, count)
    for place, change in enumerate(
        (
            "delayed = true",
            "generation = 3",
            "generation = 3, delayed = true",
            "rewrite_id = 12",
            "generation = 3, rewrite_id = 12",
        )
    ):
        rows.sql(f"UPDATE prism_small_objects SET {change} WHERE prism_small_object_id = :id", id=_ids(rows)[place])


def _ids(rows: Rows) -> list[int]:
    return [number for (number,) in rows.sql("SELECT prism_small_object_id FROM prism_small_objects ORDER BY 1")]


def insert_ranges(rows: Rows, table: TableDefinition, partition_id: int) -> None:
    """Ranges that were rewritten or not, with small and large bounds."""
    bounds = (None, 0), (0, 8), (8, 4711), (4711, LARGE), (LARGE, LARGE + 1)
    for place, (lower, upper) in enumerate(bounds):
        rows.sql(
            "INSERT INTO prism_merge_ranges (prism_partition_id, lower_bound, upper_bound, content_length, row_count, "
            "fingerprint, create_time, update_time, rewrite_id, definition_version) "
            "VALUES (:p, :lower, :upper, 1, 1, 1, now(), now(), :rewrite, 1)",
            p=partition_id, lower=lower, upper=upper, rewrite=40 * (place % 2),
        )  # fmt: skip
    rows.sql("UPDATE prism_partitions SET desired_manifest_version = :upper", upper=LARGE + 1)


def insert_records(rows: Rows, table: TableDefinition, partition_id: int) -> None:
    """Objects of records, of several buckets and cohorts."""
    for bucket, cohort in ((0, 0), (17, 1_974_321), (511, 99_999_999)):
        rows.sql(
            "WITH f AS (INSERT INTO prism_rewrites (prism_table_id, kind, definition_version, state, worker) "
            "VALUES (:t, 'fold', 1, 'done', 'w') RETURNING prism_rewrite_id AS id) "
            "INSERT INTO prism_record_objects (prism_table_id, prism_partition_id, date, part, bucket_number, cohort, "
            "fold_id, content_length, row_count, fingerprint, file_format, definition_version) "
            "SELECT :t, :p, :day, 'visible', :bucket, :cohort, id, 1, 1, 1, 1, 1 FROM f",
            t=table.table_id, p=partition_id, day=DAY, bucket=bucket, cohort=cohort,
        )  # fmt: skip
    rows.sql("UPDATE prism_partitions SET desired_manifest_version = 1")


def load_small(connection: Connection, keys: TableKeys, partition_id: int) -> Collection[DataFile]:
    return small_objects.load_above(connection, keys, partition_id, 0)


Insert = Callable[[Rows, TableDefinition, int], None]
Load = Callable[[Connection, TableKeys, int], Collection[DataFile]]
KINDS: dict[type[ObjectKey], tuple[Insert, Load]] = {
    SmallObjectKey: (insert_small_objects, load_small),
    MergedObjectKey: (insert_ranges, merge_ranges.load_chain),
    RecordKey: (insert_records, record_objects.load_shown),
}
