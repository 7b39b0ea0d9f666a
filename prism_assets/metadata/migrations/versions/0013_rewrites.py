"""How often in a row an object was written again before it was read: a new version has all attempts for itself."""

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE prism_staging_objects ADD COLUMN rewrites integer NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE prism_staging_objects DROP COLUMN rewrites")
