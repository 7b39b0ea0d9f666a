"""Where a listing goes on that ended at its deadline, and the time of the youngest object it had seen by then."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE prism_stream_scans ADD COLUMN resume_key text, ADD COLUMN resume_time timestamptz")


def downgrade() -> None:
    op.execute("ALTER TABLE prism_stream_scans DROP COLUMN resume_key, DROP COLUMN resume_time")
