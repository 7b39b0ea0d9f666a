"""The version of the stored schema, compared with the migrations of this code."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, text

_VERSIONS = Path(__file__).parent / "migrations" / "versions"


def newer_version(connection: Connection) -> str | None:
    """Returns the version of a schema that this code does not know, because later code brought it up to date.

    None if the code knows it, and before the first migration. Reads without locks.
    """
    if connection.execute(text("SELECT to_regclass('alembic_version') IS NULL")).scalar_one():
        return None
    found = connection.execute(text("SELECT max(version_num) FROM alembic_version")).scalar()
    known = {path.name.partition("_")[0] for path in _VERSIONS.glob("[0-9]*.py")}
    return None if found is None or found in known else str(found)
