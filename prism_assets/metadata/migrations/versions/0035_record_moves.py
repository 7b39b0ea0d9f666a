"""Moves of records: which days folds have taken records out of, and to which days, so that readers miss none."""

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
"""
_DOWN = """
DROP TABLE prism_record_moves;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
