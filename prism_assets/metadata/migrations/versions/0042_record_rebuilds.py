"""Records are rebuilt of their changes, under a number among those of folds."""

from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE prism_folds DROP CONSTRAINT prism_folds_kind_check,
    ADD CONSTRAINT prism_folds_kind_check CHECK (kind IN ('fold', 'merge', 'erasure', 'rebuild'));
"""
_DOWN = """
UPDATE prism_folds SET kind = 'erasure' WHERE kind = 'rebuild';
ALTER TABLE prism_folds DROP CONSTRAINT prism_folds_kind_check,
    ADD CONSTRAINT prism_folds_kind_check CHECK (kind IN ('fold', 'merge', 'erasure'));
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    """What rebuilds wrote is to the version before what another that replaces objects wrote."""
    op.execute(_DOWN)
