"""Settled records are merged: what else than folds takes numbers of theirs, and which objects of records no merge looks at again."""

from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE prism_folds ADD COLUMN kind text NOT NULL DEFAULT 'fold'
    CHECK (kind IN ('fold', 'merge', 'erasure'));
ALTER TABLE prism_record_objects ADD COLUMN merges integer NOT NULL DEFAULT 0,
    ADD COLUMN is_merged boolean NOT NULL DEFAULT false;
CREATE INDEX prism_record_objects_unmerged ON prism_record_objects (prism_table_id, prism_partition_id)
    WHERE replaced_by IS NULL AND is_settled AND NOT is_merged AND part = 'visible';
UPDATE prism_record_objects SET fault = NULL WHERE replaced_by IS NULL AND is_settled AND fault IS NOT NULL;
CREATE INDEX prism_record_objects_faults ON prism_record_objects (prism_table_id)
    WHERE replaced_by IS NULL AND fault IS NOT NULL;
CREATE INDEX prism_folds_merges ON prism_folds (prism_table_id, prism_fold_id) WHERE kind = 'merge';
"""
_DOWN = """
DROP INDEX prism_folds_merges, prism_record_objects_faults, prism_record_objects_unmerged;
ALTER TABLE prism_record_objects DROP COLUMN is_merged, DROP COLUMN merges;
ALTER TABLE prism_folds DROP COLUMN kind;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    """What merges wrote is to the version before what folds wrote, with records that have settled."""
    op.execute(_DOWN)
