"""The clock of the database, which is the same for all processes, whatever those of their hosts say."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text


def database_time(connection: Connection) -> datetime:
    """The time now, by the clock that commits are recorded with."""
    time: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    return time


def not_ahead(connection: Connection, now: datetime) -> datetime:
    """The time of a command, which may lie in the past, but not ahead of the database's clock."""
    return min(now, database_time(connection))
