"""What refers to folds and days of records is found by an index, when those of a dropped table are forgotten."""

from alembic import op

revision = "0039"
down_revision = "0038"
branch_labels = None
depends_on = None

_UP = """
CREATE INDEX prism_record_objects_partition ON prism_record_objects (prism_partition_id);
CREATE INDEX prism_record_objects_replaced_by ON prism_record_objects (replaced_by) WHERE replaced_by IS NOT NULL;
CREATE INDEX prism_record_moves_fold ON prism_record_moves (prism_fold_id);
CREATE INDEX prism_record_moves_to ON prism_record_moves (to_partition_id);
CREATE INDEX prism_fold_positions_fold ON prism_fold_positions (fold_id);
"""
_DOWN = """
DROP INDEX prism_record_objects_partition, prism_record_objects_replaced_by, prism_record_moves_fold,
    prism_record_moves_to, prism_fold_positions_fold;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
