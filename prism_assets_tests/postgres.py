"""Databases for tests: each a copy of one that was migrated once."""

from __future__ import annotations

import itertools

import sqlalchemy
from sqlalchemy import text

from prism_assets.metadata.database import Database

_TEMPLATE = "prism_template"


class PostgresServer:
    """Makes and drops databases on one server."""

    def __init__(self, url: str) -> None:
        self._url = sqlalchemy.make_url(url)
        self._engine = sqlalchemy.create_engine(self._url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool)
        self._numbers = itertools.count(1)
        self._migrated = False

    def create_database(self) -> str:
        """Makes a migrated, empty database and returns its URL."""
        if not self._migrated:
            self._execute(f"CREATE DATABASE {_TEMPLATE}")
            template = Database(self._render(_TEMPLATE))
            template.migrate()
            template.dispose()
            self._migrated = True
        name = f"prism_test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY FILE_COPY")
        return self._render(name)

    def drop_database(self, url: str) -> None:
        """Drops a database, ending what is still connected to it."""
        self._execute(f"DROP DATABASE {sqlalchemy.make_url(url).database} WITH (FORCE)")

    def _render(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)

    def _execute(self, statement: str) -> None:
        with self._engine.connect() as connection:
            connection.execute(text(statement))
