"""Folds in bad situations: which days records move between, and what of their inputs folds could not read."""

from alembic import op

revision = "0035"
down_revision = "0034"
branch_labels = None
depends_on = None

_UP = """
-- A fold found that two records of different days are one: it is a row of the earlier day since, and none of the later.
CREATE TABLE prism_record_moves (
    prism_fold_id bigint NOT NULL REFERENCES prism_folds,
    from_partition_id bigint NOT NULL REFERENCES prism_partitions,
    to_partition_id bigint NOT NULL REFERENCES prism_partitions,
    PRIMARY KEY (from_partition_id, to_partition_id, prism_fold_id)
);

-- Small objects of changes that no fold could read: folds go on without them, and try them again from `retry_time` on.
CREATE TABLE prism_set_aside_changes (
    prism_small_object_id bigint PRIMARY KEY,
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    fault text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_time timestamptz NOT NULL
);
CREATE INDEX prism_set_aside_changes_partition ON prism_set_aside_changes (prism_partition_id);

-- Why the last fold could not read an object of records, or of changes that wait: its bucket waits.
ALTER TABLE prism_record_objects ADD COLUMN fault text;
"""
_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_set_aside_changes) THEN
        RAISE EXCEPTION 'changes are set aside: the version before would take them as folded. `prism repair` mends their objects';
    END IF;
END $$
"""
_DOWN = """
ALTER TABLE prism_record_objects DROP COLUMN fault;
DROP TABLE prism_set_aside_changes;
DROP TABLE prism_record_moves;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    """Refused while changes are set aside."""
    op.execute(_REFUSE)
    op.execute(_DOWN)
