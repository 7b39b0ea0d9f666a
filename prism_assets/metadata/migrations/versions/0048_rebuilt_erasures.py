"""Rebuilds of tables of which rows were erased: by which erasures, and how many lines that left out."""

from alembic import op

revision = "0048"
down_revision = "0047"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE prism_rebuilds ADD COLUMN erasure_id bigint NOT NULL DEFAULT 0;
ALTER TABLE prism_rebuilt_objects ADD COLUMN rows_erased bigint NOT NULL DEFAULT 0;
"""
_DOWN = """
ALTER TABLE prism_rebuilt_objects DROP COLUMN rows_erased;
ALTER TABLE prism_rebuilds DROP COLUMN erasure_id;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
