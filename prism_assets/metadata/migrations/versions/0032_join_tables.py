"""Join tables: which table logs the changes of which, and up to where records settle."""

from alembic import op

from prism_assets.metadata.migrations.indexes import build_index

revision = "0032"
down_revision = "0031"
branch_labels = None
depends_on = None

# May be done again. The clock of a join table stands with its records, and with an object of a stream the one that was
# in force when a batch claimed it first.
_UP = """
ALTER TABLE prism_tables ADD COLUMN IF NOT EXISTS changes_of bigint UNIQUE REFERENCES prism_tables,
    ADD COLUMN IF NOT EXISTS settle_clock timestamptz;
ALTER TABLE prism_staging_objects ADD COLUMN IF NOT EXISTS settle_clock timestamptz;
"""
_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_tables WHERE changes_of IS NOT NULL) THEN
        RAISE EXCEPTION 'there are join tables, which the version before does not know';
    END IF;
END $$
"""
_DOWN = """
DROP INDEX prism_staging_objects_oldest;
ALTER TABLE prism_staging_objects DROP COLUMN settle_clock;
ALTER TABLE prism_tables DROP COLUMN settle_clock, DROP COLUMN changes_of;
"""


def upgrade() -> None:
    op.execute(_UP)
    build_index(
        "prism_staging_objects_oldest",
        "prism_staging_objects",
        "(prism_table_id, coalesce(send_time, first_receive_time)) WHERE state IN ('pending', 'claimed')",
    )


def downgrade() -> None:
    """Refused once there are join tables: the version before knows neither of their two."""
    op.execute(_REFUSE)
    op.execute(_DOWN)
