"""From when on the time to the next commit to an Iceberg table counts, so that they keep to their pace."""

from alembic import op

revision = "0023"
down_revision = "0022"
branch_labels = None
depends_on = None

_UP = """
-- When each commit was made stands in prism_iceberg_log. By the sequence numbers nothing was decided.
ALTER TABLE prism_iceberg_tables RENAME COLUMN commit_time TO pace_time;
ALTER TABLE prism_iceberg_tables DROP COLUMN sequence_number, DROP COLUMN oldest_sequence_number;
"""
_DOWN = """
ALTER TABLE prism_iceberg_tables ADD COLUMN sequence_number bigint NOT NULL DEFAULT 0,
    ADD COLUMN oldest_sequence_number bigint NOT NULL DEFAULT 0;
ALTER TABLE prism_iceberg_tables RENAME COLUMN pace_time TO commit_time;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
