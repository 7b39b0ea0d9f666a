"""One database for many tests: emptied before each, which is much quicker than making one."""

from __future__ import annotations

from prism_assets.metadata.database import Database


def empty(url: str) -> None:
    """Empties all prism tables and starts their ids at 1 again; fails instead of waiting for a forgotten session."""
    database = Database(url)
    with database.begin() as connection:
        connection.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")  # deletes in any order
        names = connection.exec_driver_sql("SELECT tablename FROM pg_tables WHERE tablename LIKE 'prism%%'").scalars()
        connection.exec_driver_sql(";".join(f"DELETE FROM {name}" for name in names))
        connection.exec_driver_sql("SELECT setval(oid, 1, false) FROM pg_class WHERE relkind = 'S'")
    database.dispose()
