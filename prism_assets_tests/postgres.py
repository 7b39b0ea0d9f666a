"""Databases for tests: copies of a migrated one."""

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

    @property
    def url(self) -> str:
        """The URL of the server. Other processes may make further instances of it."""
        return self._url.render_as_string(hide_password=False)

    def template(self) -> str:
        """The name of a migrated, empty database."""
        if not self._migrated:
            self._execute(f"CREATE DATABASE {_TEMPLATE}")
            template = Database(self._render(_TEMPLATE))
            template.migrate()
            template.dispose()
            self._migrated = True
        return _TEMPLATE

    def create_database(self) -> str:
        """Makes a migrated, empty database and returns its URL."""
        return self.copy_database(self.template(), f"prism_test_{next(self._numbers)}")

    def create_empty_database(self) -> str:
        """Makes a database without tables and returns its URL."""
        name = f"prism_test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        return self._render(name)

    def copy_database(self, template: str, name: str) -> str:
        """Copies a database without sessions. Returns the URL of the copy."""
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return self._render(name)

    def end_sessions(self, url: str) -> None:
        """Ends all sessions of a database, like a restore of its server."""
        name = sqlalchemy.make_url(url).database
        self._execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'")

    def forget_in_a_crash(self, url: str) -> None:
        """Has commits to a database not wait for the disk, for tests with very many of them."""
        self._execute(f"ALTER DATABASE {sqlalchemy.make_url(url).database} SET synchronous_commit = off")

    def drop_database(self, url: str) -> None:
        """Drops a database after ending its sessions."""
        self.drop(sqlalchemy.make_url(url).database or "")

    def drop(self, name: str) -> None:
        """Drops a database by its name."""
        self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _render(self, name: str) -> str:
        return self._url.set(database=name).render_as_string(hide_password=False)

    def _execute(self, statement: str) -> None:
        with self._engine.connect() as connection:
            connection.execute(text(statement))
