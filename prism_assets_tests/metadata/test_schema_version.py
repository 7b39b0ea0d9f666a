"""Code beside the schema of another release: it works with the next one, and refuses all others with a sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from prism_assets.domain.errors import OldSchema, WrongSchema
from prism_assets.metadata import installation
from prism_assets.metadata.database import Database
from prism_assets.metadata.schema_version import AHEAD, SchemaVersion, load_schema_version
from prism_assets_tests.postgres import PostgresServer


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    """A database of its own with the schema of this code."""
    url = postgres.create_database()
    made = Database(url)
    yield made
    made.dispose()
    postgres.drop_database(url)


def set_version(database: Database, version: str) -> None:
    with database.begin() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{version}'")


def known_version(database: Database) -> int:
    with database.begin() as connection:
        return load_schema_version(connection).known


@pytest.mark.parametrize(
    ("stored", "sentences"),
    [
        (0, ("no prism tables of this version yet: run `prism table apply` first", None, None)),
        (3, ("have version 3, and this code needs 4: run `prism table apply` first", None, None)),
        (4, (None, None, None)),
        (5, (None, "install the new release here, too", None)),
        (6, (None, None, "install the release that ran the last `prism table apply`")),
    ],
)
def test_only_the_schema_of_the_next_release_also_works(stored: int, sentences: tuple[str | None, ...]) -> None:
    version = SchemaVersion(stored=stored, known=4)
    for found, expected in zip((version.too_old, version.notice, version.too_new), sentences, strict=True):
        assert (found is None) == (expected is None)
        assert (expected or "") in (found or "")


def test_a_migration_leaves_the_schema_of_the_next_release_alone(database: Database) -> None:
    following = f"{known_version(database) + AHEAD:04}"
    set_version(database, following)
    database.migrate()
    with database.begin() as connection:
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one() == following
        load_schema_version(connection).check()


def test_a_migration_refuses_the_schema_of_a_later_release(database: Database) -> None:
    set_version(database, f"{known_version(database) + AHEAD + 1:04}")
    with pytest.raises(WrongSchema, match="which this code does not know"):
        database.migrate()
    with database.begin() as connection, pytest.raises(WrongSchema, match="which this code does not know"):
        load_schema_version(connection).check()


def test_a_database_of_dagster_is_no_database_of_prism(database: Database) -> None:
    set_version(database, "7e2f3204cf8e")
    with pytest.raises(WrongSchema, match="give prism one of its own"):
        database.migrate()


def test_a_database_without_tables_asks_for_the_first_apply(postgres: PostgresServer) -> None:
    url = postgres.create_empty_database()
    database = Database(url)
    with database.begin() as connection, pytest.raises(OldSchema, match="run `prism table apply` first"):
        load_schema_version(connection).check()
    with pytest.raises(OldSchema, match="run `prism table apply` first"), database.begin() as connection:
        installation.load(connection)
    database.dispose()
    postgres.drop_database(url)
