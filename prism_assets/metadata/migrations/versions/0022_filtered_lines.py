"""Lines that a table's `keep` leaves out, as a count of their own in the ledger of each staging object."""

from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

# A worker of the version before commits objects with none: it refuses tables that filter. The new constraint is not
# validated, as the one before it, which every row fulfils, says the same of rows without filtered lines.
_UP = """
ALTER TABLE prism_staging_objects ADD COLUMN rows_filtered bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT prism_staging_objects_ledger
        CHECK (state <> 'done' OR lines_in = rows_out + rows_quarantined + rows_filtered) NOT VALID,
    DROP CONSTRAINT prism_staging_objects_check;
"""
_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_staging_objects WHERE rows_filtered > 0) THEN
        RAISE EXCEPTION 'lines were filtered by `keep` of a table: the version before cannot account for them';
    END IF;
END $$
"""
_DOWN = """
ALTER TABLE prism_staging_objects DROP CONSTRAINT prism_staging_objects_ledger,
    ADD CONSTRAINT prism_staging_objects_check
        CHECK (state <> 'done' OR lines_in = rows_out + rows_quarantined) NOT VALID,
    DROP COLUMN rows_filtered;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    """Refused once lines were filtered: the version before cannot account for them, and no row could be changed."""
    op.execute(_REFUSE)
    op.execute(_DOWN)
