"""The version of a table's definition that the catalog shows, so that one that failed to get there is tried again."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("ALTER TABLE prism_tables ADD COLUMN defined_version integer NOT NULL DEFAULT 0")


def downgrade() -> None:
    op.execute("ALTER TABLE prism_tables DROP COLUMN defined_version")
