"""What folds count beside their work: records with all groups, changes of buckets, and what they took of each day."""

from alembic import op

revision = "0036"
down_revision = "0035"
branch_labels = None
depends_on = None

# Of days that folds have taken before, their objects say how many changes that were: none of them goes before its day.
_UP = """
ALTER TABLE prism_record_objects ADD COLUMN IF NOT EXISTS joined_rows bigint NOT NULL DEFAULT 0;
ALTER TABLE prism_folds ADD COLUMN IF NOT EXISTS records_changed bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS records_joined bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS bucket_changes bigint[] NOT NULL DEFAULT '{}';
ALTER TABLE prism_fold_positions ADD COLUMN IF NOT EXISTS changes bigint NOT NULL DEFAULT 0,
    ADD COLUMN IF NOT EXISTS fold_id bigint REFERENCES prism_folds;
UPDATE prism_fold_positions f SET changes = (
    SELECT coalesce(sum(s.row_count), 0) FROM prism_small_objects s
    WHERE s.prism_partition_id = f.prism_partition_id AND s.prism_small_object_id <= f.folded_object_id);
CREATE INDEX IF NOT EXISTS prism_record_objects_replaced ON prism_record_objects (prism_partition_id, replaced_by)
    WHERE replaced_by IS NOT NULL AND part = 'visible';
"""
_DOWN = """
DROP INDEX prism_record_objects_replaced;
ALTER TABLE prism_fold_positions DROP COLUMN fold_id, DROP COLUMN changes;
ALTER TABLE prism_folds DROP COLUMN bucket_changes, DROP COLUMN records_joined, DROP COLUMN records_changed;
ALTER TABLE prism_record_objects DROP COLUMN joined_rows;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    """Figures that the version before does not read."""
    op.execute(_DOWN)
