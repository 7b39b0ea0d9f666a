"""The unit of the timestamps in each object: 1 milliseconds, as all were written before, 2 microseconds."""

from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("prism_small_objects", "prism_merge_ranges"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN file_format smallint NOT NULL DEFAULT 1")


def downgrade() -> None:
    for table in ("prism_small_objects", "prism_merge_ranges"):
        op.execute(f"ALTER TABLE {table} DROP COLUMN file_format")
