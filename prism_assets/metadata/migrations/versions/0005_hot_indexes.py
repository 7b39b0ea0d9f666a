"""Indexes for what sensors ask every few seconds: delayed small objects, and partitions with unmerged ones."""

from alembic import op

from prism_assets.metadata.migrations.indexes import build_index

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    build_index(
        "prism_small_objects_delayed",
        "prism_small_objects",
        "(prism_partition_id, prism_small_object_id) WHERE delayed",
    )
    build_index(
        "prism_partitions_unmerged",
        "prism_partitions",
        "(prism_table_id, partition_date) WHERE last_object_id > desired_manifest_version",
    )


def downgrade() -> None:
    op.execute("DROP INDEX prism_partitions_unmerged")
    op.execute("DROP INDEX prism_small_objects_delayed")
