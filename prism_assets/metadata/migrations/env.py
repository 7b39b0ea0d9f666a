"""Runs migrations on the connection that `prism_assets.metadata.database.migrate` hands over."""

from typing import Any

from alembic import context

given = context.config.attributes


def _check_turn(*_step: Any, **_more: Any) -> None:
    """Fails where the session with the lock of migrations is gone: another process may be migrating by now."""
    if "turn" in given:
        given["turn"].exec_driver_sql("SELECT 1")


context.configure(
    connection=given["connection"],
    transaction_per_migration=not given.get("one_transaction"),
    on_version_apply=_check_turn,
)
with context.begin_transaction():
    context.run_migrations()
