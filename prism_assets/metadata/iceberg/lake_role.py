"""The PostgreSQL role of DuckLake readers. It sees the views in `prism_lake` and has no other rights.

Migrations create it if they may, without a login. An administrator grants the login and a password.
"""

from __future__ import annotations

from collections.abc import Sequence

from prism_assets.domain.names import LAKE_READER

MOST_SESSIONS = 32

# A reader's open transaction blocks vacuum, and its files may be deleted after the reader lease, so timeouts are
# shorter. A reader may change its own timeouts; an administrator ends such a session.
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
"""For an administrator, once per server: roles belong to all its databases."""

GRANT_VIEWS: Sequence[str] = (
    f"GRANT USAGE ON SCHEMA prism_lake TO {LAKE_READER}",
    f"GRANT SELECT ON ALL TABLES IN SCHEMA prism_lake TO {LAKE_READER}",
)
"""For the owner of the tables, in each database. Migrations run it if the role exists."""


def role_script() -> str:
    """Returns a psql script that lets readers in: `psql -v password=…`. It may be repeated and contains no secret."""
    login = f"ALTER ROLE {LAKE_READER} LOGIN PASSWORD :'password'"
    return "\n".join(f"{statement};" for statement in (*MAKE_ROLE, login, *GRANT_VIEWS))
