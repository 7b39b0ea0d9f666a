"""What a client of DuckLake sees of a world, and catalogs that are built the naive way."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import sqlalchemy

from prism_assets_tests.world import World
from prism_local.readers.sessions import DuckDBSession, StatementFailed


def attach_line(
    url: str, database: str, *, name: str = "lake", schema: str = "prism_lake", options: str = "READ_ONLY, "
) -> str:
    """The ATTACH of a database on the server of `url`, as its user."""
    made = sqlalchemy.make_url(url).set(database=database, drivername="postgresql")
    words = {
        "dbname": made.database,
        "host": made.host,
        "port": made.port,
        "user": made.username,
        "password": made.password,
    }
    said = " ".join(f"{key}={value}" for key, value in words.items())
    return f"ATTACH 'ducklake:postgres:{said}' AS {name} ({options}METADATA_SCHEMA '{schema}')"


@dataclass
class LakeOfTest:
    """One session of DuckDB with the lake of a world attached, as the role of readers."""

    world: World
    session: DuckDBSession
    url: str
    attached: bool = False

    @property
    def database(self) -> str:
        """The database of the world."""
        name = sqlalchemy.make_url(self.world.settings.database_url.get_secret_value()).database
        assert name
        return name

    def attach(self, **options: Any) -> None:
        """Attaches the lake anew, as a new session of a client does."""
        self.detach(options.get("name", "lake"))
        self.session.query(attach_line(self.url, self.database, **options))

    def detach(self, name: str = "lake") -> None:
        """Lets go of the lake."""
        with suppress(StatementFailed):
            self.session.query(f"DETACH {name}")
        self.attached = False

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """Asks in the session that is open since the first question."""
        if not self.attached:
            self.attach()
            self.attached = True
        return self.session.query(sql)

    def ids(self, table: str = "log.events", where: str = "true", lake: str = "lake") -> list[int]:
        """All ids that a reader sees, sorted, doubles included."""
        return sorted(row[0] for row in self.query(f"SELECT id FROM {lake}.{table} WHERE {where}"))
