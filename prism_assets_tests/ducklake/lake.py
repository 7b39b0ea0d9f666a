"""A world as seen by a client of DuckLake, and catalogs built the naive way."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy

from prism_assets_tests.world import World
from prism_local.readers.sessions import DuckDBSession, StatementFailed


@dataclass
class LakeOfTest:
    """One session of DuckDB with the lake of a world attached, as the role of readers, since the first question."""

    world: World
    session: DuckDBSession
    reader_url: str
    attached: bool = False

    @property
    def database(self) -> str:
        """The database of the world."""
        return str(sqlalchemy.make_url(self.owner_url).database)

    @property
    def owner_url(self) -> str:
        """The URL by which the platform reaches the world's database."""
        return self.world.settings.database_url.get_secret_value()

    def source(self, *, owner: bool = False) -> str:
        """How libpq finds the database."""
        url = sqlalchemy.make_url(self.owner_url if owner else self.reader_url)
        words = {"dbname": self.database, "host": url.host, "port": url.port, "user": url.username}
        return " ".join(f"{key}={value}" for key, value in {**words, "password": url.password}.items())

    def attach(
        self, name: str = "lake", *, schema: str = "prism_lake", options: str = "READ_ONLY", owner: bool = False
    ) -> None:
        """Attaches the lake in a new session."""
        self.detach(name)
        said = ", ".join(option for option in (options, f"METADATA_SCHEMA '{schema}'") if option)
        self.session.query(f"ATTACH 'ducklake:postgres:{self.source(owner=owner)}' AS {name} ({said})")
        self.attached |= name == "lake"

    def detach(self, name: str = "lake") -> None:
        """Lets go of the lake."""
        with suppress(StatementFailed):
            self.session.query(f"DETACH {name}")
        self.attached &= name != "lake"

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Runs a query in the session that is open since the first query."""
        if not self.attached:
            self.attach()
        return self.session.query(sql)

    def ids(self, where: str = "true", *, table: str = "log.events", name: str = "lake") -> list[int]:
        """Returns all ids seen by a reader, sorted, with doubles."""
        return sorted(row[0] for row in self.query(f"SELECT id FROM {name}.{table} WHERE {where}"))

    def sql(self, statement: str) -> list[Any]:
        """Runs a statement of PostgreSQL as the owner."""
        with self.world.context.database.begin() as connection:
            result = connection.exec_driver_sql(statement)
            return list(result.all()) if result.returns_rows else []

    def copy_catalog(self, schema: str, kind: str = "VIEW", changed: Mapping[str, str] | None = None) -> None:
        """Copies the catalog to its own schema. Some of its tables come from other queries."""
        self.sql(f"CREATE SCHEMA {schema}")
        names = self.sql("SELECT viewname FROM pg_views WHERE schemaname = 'prism_lake'")
        for (name,) in names:
            query = (changed or {}).get(name, f"SELECT * FROM prism_lake.{name}")
            self.sql(f"CREATE {kind} {schema}.{name} AS {query}")


def with_other(view: str, **columns: str) -> dict[str, str]:
    """Returns one table of the catalog with other expressions for some columns."""
    said = {
        "ducklake_data_file": (
            "data_file_id, table_id, begin_snapshot, end_snapshot, file_order, path, path_is_relative, file_format, "
            "record_count, file_size_bytes, footer_size, row_id_start, partition_id, encryption_key, mapping_id, "
            "partial_max"
        ),
        "ducklake_snapshot": "snapshot_id, snapshot_time, schema_version, next_catalog_id, next_file_id",
    }[view]
    chosen = ", ".join(f"{columns[name]} AS {name}" if name in columns else name for name in said.split(", "))
    return {view: f"SELECT {chosen} FROM prism_lake.{view} f"}
