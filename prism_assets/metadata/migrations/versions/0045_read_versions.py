"""Under which definition an object was converted first: it says what the object holds, also behind a rebuild."""

from alembic import op

revision = "0045"
down_revision = "0044"
branch_labels = None
depends_on = None

# Null is that of `definition_version`: until a rebuild puts another one there.
_UP = "ALTER TABLE prism_staging_objects ADD COLUMN read_version integer"
_DOWN = "ALTER TABLE prism_staging_objects DROP COLUMN read_version"


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
