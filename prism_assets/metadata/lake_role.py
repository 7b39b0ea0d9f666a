"""The role of readers of DuckLake: it sees the views of `prism_lake` and may do nothing else.

Migrations make it where they may, without a login: an administrator gives it one, and a password.
"""

from __future__ import annotations

from collections.abc import Sequence

from prism_assets.domain.names import LAKE_READER

MOST_SESSIONS = 32

# An open transaction of a reader keeps vacuum from cleaning up behind merges, and its files may be deleted when the
# reader lease is over: none lasts that long. A reader may change its own timeouts; an administrator ends such a session.
_LIMITS = {
    "default_transaction_read_only": "on",
    "statement_timeout": "5min",
    "idle_in_transaction_session_timeout": "5min",
    "idle_session_timeout": "1h",
}

MAKE_ROLE: Sequence[str] = (
    f"DO $$ BEGIN CREATE ROLE {LAKE_READER}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$",
    f"ALTER ROLE {LAKE_READER} NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION CONNECTION LIMIT {MOST_SESSIONS}",
    *(f"ALTER ROLE {LAKE_READER} SET {name} = '{value}'" for name, value in _LIMITS.items()),
)
"""For an administrator, once for each server: roles belong to all databases of one."""

GRANT_VIEWS: Sequence[str] = (
    f"GRANT USAGE ON SCHEMA prism_lake TO {LAKE_READER}",
    f"GRANT SELECT ON ALL TABLES IN SCHEMA prism_lake TO {LAKE_READER}",
)
"""For the owner of the tables, in the database itself. Migrations do it where there is the role."""


def role_script() -> str:
    """What psql runs to let readers in: `psql -v password=…`. It may be run again, and holds no secret."""
    login = f"ALTER ROLE {LAKE_READER} LOGIN PASSWORD :'password'"
    return "\n".join(f"{statement};" for statement in (*MAKE_ROLE, login, *GRANT_VIEWS))
