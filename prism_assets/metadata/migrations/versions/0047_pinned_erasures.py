"""Which erasures an object respects is decided when a batch claims it first, as all attempts give the same rows."""

from alembic import op

revision = "0047"
down_revision = "0046"
branch_labels = None
depends_on = None

# Null is all that there are, for objects that were begun before.
_UP = "ALTER TABLE prism_staging_objects ADD COLUMN erasure_id bigint"
_DOWN = "ALTER TABLE prism_staging_objects DROP COLUMN erasure_id"


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
