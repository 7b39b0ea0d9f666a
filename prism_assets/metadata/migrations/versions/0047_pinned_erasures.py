"""Which erasures an object respects is decided when a batch claims it first, as all attempts give the same rows."""

from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

# What is begun respects the erasures that there were by its first batch. What no batch has claimed is read as the last
# definition says that named its stream, but under the one in force: nothing is kept of it any more.
_UP = """
ALTER TABLE prism_staging_objects ADD COLUMN respected_erasure_id bigint;
UPDATE prism_staging_objects o SET respected_erasure_id = (
    SELECT coalesce(max(e.prism_erasure_id), 0) FROM prism_erasures e
    WHERE e.prism_table_id = o.prism_table_id AND e.after_batch_id < o.first_batch_id)
WHERE o.state IN ('pending', 'claimed') AND o.first_batch_id IS NOT NULL;
UPDATE prism_staging_objects SET definition_version = NULL
WHERE state = 'pending' AND first_batch_id IS NULL AND definition_version IS NOT NULL
"""
_DOWN = "ALTER TABLE prism_staging_objects DROP COLUMN respected_erasure_id"


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
