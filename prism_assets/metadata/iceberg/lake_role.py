"""The PostgreSQL role of DuckLake readers. It sees the views in `prism_lake` and has no other rights.

Migrations create it if they may, without a login. An administrator grants the login and a password, and makes the role
where migrations may not.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.engine import Connection

from prism_assets.domain.errors import WrongUse
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

_NO_RIGHTS = "NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION"
MAKE_ROLE: Sequence[str] = (
    f"DO $$ BEGIN CREATE ROLE {LAKE_READER}; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$",
    # Only a superuser may name these rights. A new role has none of them.
    "DO $$ BEGIN IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN "
    f"ALTER ROLE {LAKE_READER} {_NO_RIGHTS}; END IF; END $$",
    f"ALTER ROLE {LAKE_READER} CONNECTION LIMIT {MOST_SESSIONS}",
    *(f"ALTER ROLE {LAKE_READER} SET {name} = '{value}'" for name, value in _LIMITS.items()),
)
"""For an administrator, once per server: roles belong to all its databases."""

GRANT_VIEWS: Sequence[str] = (
    f"GRANT USAGE ON SCHEMA prism_lake TO {LAKE_READER}",
    f"GRANT SELECT ON ALL TABLES IN SCHEMA prism_lake TO {LAKE_READER}",
)
"""For the owner of the tables, in each database. Migrations run it if the role exists."""


def grant_views(connection: Connection) -> None:
    """Grants the views to the role. The caller owns them. Raises WrongUse without the role."""
    if not connection.execute(text(_EXISTS), {"role": LAKE_READER}).scalar_one():
        raise WrongUse(
            f"PostgreSQL has no role {LAKE_READER}: `prism ducklake role` prints what an administrator runs first"
        )
    for statement in GRANT_VIEWS:
        connection.execute(text(statement))


_EXISTS = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = :role)"


def role_script() -> str:
    """Returns a psql script that lets readers in: `psql -v password=…`. It may be repeated and contains no secret.

    If the administrator does not own the views, a notice says how their owner grants them.
    """
    login = f"ALTER ROLE {LAKE_READER} LOGIN PASSWORD :'password'"
    return "\n".join(f"{statement};" for statement in (*MAKE_ROLE, login, _GRANT_IF_OWNER))


# GRANT by others raises an error, or only a warning if they may read the views.
_GRANT_IF_OWNER = (
    f"DO $$ BEGIN BEGIN {' '.join(f'{statement};' for statement in GRANT_VIEWS)} "
    "EXCEPTION WHEN insufficient_privilege THEN NULL; END; "
    f"IF NOT has_schema_privilege('{LAKE_READER}', 'prism_lake', 'USAGE') THEN "
    "RAISE NOTICE 'the views are granted by their owner: run `prism ducklake role --grant`'; END IF; END $$"
)
