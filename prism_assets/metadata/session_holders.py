"""Names the holders of PostgreSQL's sessions, for the error of a process that gets none."""

from __future__ import annotations

import time

import sqlalchemy
from sqlalchemy import Connection, NullPool, text
from sqlalchemy.exc import DBAPIError

from prism_assets.domain.text import counted
from prism_assets.postgres import follow_password

_TRIES, _PAUSE_SECONDS, _CONNECT_SECONDS = 3, 0.5, 2
"""Other processes end sessions all the time, so one is often free a moment later."""
_MOST_NAMED = 3
_QUESTION = "SELECT usename, datname, application_name, count(*) FROM pg_stat_activity GROUP BY 1, 2, 3 ORDER BY 4 DESC"


def describe_holders(url: sqlalchemy.URL) -> str:
    """Returns a clause that names the largest holders of sessions, or the statement that finds them.

    Called where a session was refused. It tries for a session of its own for two seconds at most.
    """
    arguments = {"connect_timeout": _CONNECT_SECONDS, "prepare_threshold": None}
    engine = sqlalchemy.create_engine(url, poolclass=NullPool, connect_args=arguments)
    follow_password(engine)
    for attempt in range(_TRIES):
        try:
            with engine.connect() as connection:
                return read_holders(connection)
        except DBAPIError:
            if attempt + 1 < _TRIES:
                time.sleep(_PAUSE_SECONDS)
    return f"`{_QUESTION}` names who holds them"


def read_holders(connection: Connection) -> str:
    """Returns this clause from the current sessions. Takes no lock.

    PostgreSQL hides the programs of other roles from a role without `pg_read_all_stats`.
    """
    most = connection.execute(text("SELECT current_setting('max_connections')")).scalar_one()
    statement = text(
        "SELECT coalesce(usename, '?') AS role, coalesce(datname, '?') AS database, "
        "coalesce(nullif(application_name, ''), 'a program without a name') AS program, count(*) AS sessions "
        "FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() "
        "GROUP BY 1, 2, 3 ORDER BY 4 DESC, 1, 2, 3"
    )
    rows = connection.execute(statement).all()
    named = [
        f"{row.program} has {row.sessions} as user {row.role} in database {row.database}" for row in rows[:_MOST_NAMED]
    ]
    others = sum(row.sessions for row in rows[_MOST_NAMED:])
    if others:
        named.append(f"others have {others}")
    return f"of {counted(int(most), 'session')} {', '.join(named)}"
