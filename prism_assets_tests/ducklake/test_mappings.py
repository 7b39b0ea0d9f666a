"""Each definition of a table has a mapping of its column names, numbered in the order in which readers see them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import pytest

from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata.database import Database
from prism_assets.metadata.tables import tables
from prism_assets_tests.metadata.rows import NOON, Rows
from prism_assets_tests.postgres import PostgresServer


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
