"""Of which days lines are that a rebuild of another day has set aside: a rebuild of those finds them by it."""

from alembic import op

revision = "0044"
down_revision = "0043"
branch_labels = None
depends_on = None

# Null is not recorded: of lines that were set aside for other reasons, or before this was.
_UP = """
ALTER TABLE prism_quarantine ADD COLUMN dates date[];
ALTER TABLE prism_rebuilt_objects ADD COLUMN other_dates date[];
"""
_DOWN = """
ALTER TABLE prism_rebuilt_objects DROP COLUMN other_dates;
ALTER TABLE prism_quarantine DROP COLUMN dates;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
