"""One database for many tests: emptied before each, which is much quicker than making one."""

from __future__ import annotations

from prism_assets.metadata.database import Database
from prism_assets.metadata.schema_version import load_schema_version


def empty(url: str) -> None:
    """Empties all prism tables, starts their ids at 1 again, and gives them the version of this code.

    Fails instead of waiting for a forgotten session.
    """
    database = Database(url)
    with database.begin() as connection:
        connection.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")  # deletes in any order
        names = connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE tablename LIKE 'prism%%'").scalars()
        connection.exec_driver_sql(";".join(f"DELETE FROM {name}" for name in names))
        connection.exec_driver_sql("SELECT setval(oid, 1, false) FROM pg_class WHERE relkind = 'S'")
        version = load_schema_version(connection)
        if version.stored != version.known:
            connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{version.known:04}'")
    database.dispose()
