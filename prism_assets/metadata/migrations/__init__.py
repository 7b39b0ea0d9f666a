"""Alembic migrations; `prism_assets.metadata.database.migrate` applies them."""
