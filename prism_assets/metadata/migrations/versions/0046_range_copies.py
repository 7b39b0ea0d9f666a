"""Copies of merged objects with wider types, which take their place when all have one; and tables that flip to them."""

from alembic import op

revision = "0046"
down_revision = "0045"
branch_labels = None
depends_on = None

# A copy is that of a range for as long as that has the same bounds and is under the same revision. What it holds is
# what the range holds, so the other columns of ranges say it. What lies under another number up to `void_up_to`
# than that of a range will never be its own. While a table flips nothing new is taken in, till then at most.
_UP = """
CREATE TABLE prism_range_copies (
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    upper_bound bigint NOT NULL,
    lower_bound bigint NOT NULL,
    copied_revision bigint NOT NULL,
    revision bigint NOT NULL,
    content_length bigint NOT NULL,
    file_format smallint NOT NULL,
    metrics jsonb,
    definition_version integer NOT NULL,
    create_time timestamptz NOT NULL,
    PRIMARY KEY (prism_partition_id, upper_bound)
);
ALTER TABLE prism_tables ADD COLUMN intake_paused_until timestamptz;
ALTER TABLE prism_partitions ADD COLUMN void_up_to bigint NOT NULL DEFAULT 0;
"""
_DOWN = """
ALTER TABLE prism_partitions DROP COLUMN void_up_to;
ALTER TABLE prism_tables DROP COLUMN intake_paused_until;
DROP TABLE prism_range_copies;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
