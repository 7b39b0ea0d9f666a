"""Indexes to list what was set aside by table and by reason, and values that did not fit, in a lake of any size."""

from alembic import op

from prism_assets.metadata.migrations.indexes import build_index

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    build_index(
        "prism_staging_objects_quarantined",
        "prism_staging_objects",
        "(prism_table_id, prism_staging_object_id) WHERE rows_quarantined > 0",
    )
    build_index(
        "prism_staging_objects_unfit",
        "prism_staging_objects",
        "(prism_table_id, finish_time) WHERE value_errors IS NOT NULL",
    )
    build_index("prism_quarantine_reason", "prism_quarantine", "(reason, prism_staging_object_id)")


def downgrade() -> None:
    op.execute("DROP INDEX prism_quarantine_reason")
    op.execute("DROP INDEX prism_staging_objects_unfit")
    op.execute("DROP INDEX prism_staging_objects_quarantined")
