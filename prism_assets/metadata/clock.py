"""The database's clock, common to all processes regardless of their hosts' clocks."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, text


def database_time(connection: Connection) -> datetime:
    """Returns the current time of the database's clock, which also timestamps commits."""
    time: datetime = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
    return time


def not_ahead(connection: Connection, now: datetime) -> datetime:
    """Returns the earlier of a command's time, which may be in the past, and the database's time."""
    return min(now, database_time(connection))
