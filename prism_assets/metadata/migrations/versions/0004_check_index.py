"""An index over what was converted when, so that checks over the last day read nothing else."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(
        "CREATE INDEX prism_staging_objects_done ON prism_staging_objects (prism_table_id, finish_time) "
        "INCLUDE (lines_in, rows_quarantined) WHERE state = 'done'"
    )


def downgrade() -> None:
    op.execute("DROP INDEX prism_staging_objects_done")
