"""The first release: `metadata/schema.sql` as it was then, in one transaction."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_SCHEMA = Path(__file__).parents[2] / "schema.sql"


def upgrade() -> None:
    # The text goes to PostgreSQL as it is. A colon or a percent sign in it is no parameter.
    op.get_bind().exec_driver_sql(_SCHEMA.read_text("utf-8"), execution_options={"no_parameters": True})
