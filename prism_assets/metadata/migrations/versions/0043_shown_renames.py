"""Since when each publisher shows the last step of a rename of columns: how long readers may look back counts from there."""

from alembic import op

revision = "0043"
down_revision = "0042"
branch_labels = None
depends_on = None

# Of what was shown before it is not known since when: it counts from now on.
_UP = """
ALTER TABLE prism_table_publications ADD COLUMN renamed_time timestamptz NOT NULL DEFAULT clock_timestamp();
"""
_DOWN = """
ALTER TABLE prism_table_publications DROP COLUMN renamed_time;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
