"""The first and the last time of the rows of a merged object, as of a small one."""

from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE prism_merge_ranges ADD COLUMN min_time timestamptz, ADD COLUMN max_time timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE prism_merge_ranges DROP COLUMN min_time, DROP COLUMN max_time")
