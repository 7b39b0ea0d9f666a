"""Runs migrations on the connection that `prism_assets.metadata.database.migrate` hands over."""

from alembic import context

given = context.config.attributes
context.configure(connection=given["connection"], transaction_per_migration=not given.get("one_transaction"))
with context.begin_transaction():
    context.run_migrations()
