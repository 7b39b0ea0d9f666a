"""What is known of the values of some columns in each object: nulls and bounds, by column id."""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("prism_small_objects", "prism_merge_ranges"):
        op.execute(f"ALTER TABLE {table} ADD COLUMN metrics jsonb")


def downgrade() -> None:
    for table in ("prism_small_objects", "prism_merge_ranges"):
        op.execute(f"ALTER TABLE {table} DROP COLUMN metrics")
