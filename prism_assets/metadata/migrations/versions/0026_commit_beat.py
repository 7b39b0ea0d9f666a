"""From when on the time to the next commit to an Iceberg table counts, so that commits keep to a beat."""

from alembic import op

revision = "0026"
down_revision = "0020"
branch_labels = None
depends_on = None

_UP = """
-- When each commit was made stands in prism_iceberg_log.
ALTER TABLE prism_iceberg_tables RENAME COLUMN commit_time TO beat_time;
"""
_DOWN = """
ALTER TABLE prism_iceberg_tables RENAME COLUMN beat_time TO commit_time;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
