"""Revisions of a partition's manifest: a repaired object may have another length than the manifest says."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_UP = """
-- How often a repair set lengths of a closed partition's objects anew, and how many of these the catalog shows.
ALTER TABLE prism_partitions ADD COLUMN revision integer NOT NULL DEFAULT 0;
ALTER TABLE prism_partitions ADD COLUMN published_revision integer NOT NULL DEFAULT 0;
DROP INDEX prism_partitions_work;
CREATE INDEX prism_partitions_work ON prism_partitions (prism_table_id)
    WHERE NOT switched OR current_manifest_version < desired_manifest_version
        OR coalesce(published_object_id, 0) < last_object_id OR published_revision < revision;
"""

_DOWN = """
DROP INDEX prism_partitions_work;
ALTER TABLE prism_partitions DROP COLUMN published_revision;
ALTER TABLE prism_partitions DROP COLUMN revision;
CREATE INDEX prism_partitions_work ON prism_partitions (prism_table_id)
    WHERE NOT switched OR current_manifest_version < desired_manifest_version
        OR coalesce(published_object_id, 0) < last_object_id;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
