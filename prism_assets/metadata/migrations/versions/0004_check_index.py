"""An index over what was converted when, so that checks over the last day read nothing else."""

from alembic import op

from prism_assets.metadata.migrations.indexes import build_index

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    build_index(
        "prism_staging_objects_done",
        "prism_staging_objects",
        "(prism_table_id, finish_time) INCLUDE (lines_in, rows_quarantined) WHERE state = 'done'",
    )


def downgrade() -> None:
    op.execute("DROP INDEX prism_staging_objects_done")
