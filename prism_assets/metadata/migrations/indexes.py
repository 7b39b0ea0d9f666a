"""Indexes on tables that are in use: built while others read and write them, and what a migration does before."""

from __future__ import annotations

from alembic import op
from sqlalchemy import text


def change_tables(statements: str, *, makes: str) -> None:
    """Executes what a migration changes before it builds indexes; `makes` is a table that these statements make.

    Building commits it, before the version is recorded. So a death in the middle has it done again: all of it was done,
    or nothing was, and the table tells which.
    """
    if op.get_bind().execute(text("SELECT to_regclass(:name) IS NULL"), {"name": makes}).scalar_one():
        op.execute(statements)


def build_index(name: str, table: str, definition: str) -> None:
    """Builds the index `name ON table definition`, which keeps no reader and no writer of the table waiting.

    That takes more than one transaction, so what the migration did before is committed first, and must be able to be
    done again: see `change_tables`. A death in the middle leaves an index that is marked as invalid, and the migration
    undone: the next one drops the index and builds it anew, or finds it whole. Nobody uses an empty table yet; there the
    index comes with the transaction, which is quicker.
    """
    connection = op.get_bind()
    valid = connection.execute(
        text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:name)"), {"name": name}
    ).scalar()
    if valid:
        return
    if valid is None and connection.execute(text(f"SELECT NOT EXISTS (SELECT 1 FROM {table})")).scalar_one():
        op.execute(f"CREATE INDEX {name} ON {table} {definition}")
        return
    # Outside of transactions no lock_timeout is set: it waits for transactions that are older, and nobody waits for it.
    with op.get_context().autocommit_block():
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        op.execute(f"CREATE INDEX CONCURRENTLY {name} ON {table} {definition}")


def execute_alone(statement: str) -> None:
    """Executes a statement that is committed at once within `autocommit_block`, and otherwise with its migration.

    It waits 30 seconds for a lock, as others would queue behind it.
    """
    if op.get_bind().get_execution_options().get("isolation_level") == "AUTOCOMMIT":
        statement = f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '30s'; {statement}; COMMIT"
    op.execute(statement)
