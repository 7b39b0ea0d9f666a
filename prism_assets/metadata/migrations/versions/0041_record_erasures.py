"""Erasures of join tables: up to which one it is known of an object of records that it holds nothing of it."""

from alembic import op

revision = "0041"
down_revision = "0040"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE prism_record_objects ADD COLUMN erasure_id bigint NOT NULL DEFAULT 0;
"""
_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_erasures e JOIN prism_tables t USING (prism_table_id)
        WHERE e.state <> 'proved' AND (t.changes_of IS NOT NULL OR EXISTS (
            SELECT 1 FROM prism_tables c WHERE c.changes_of = t.prism_table_id)))
    THEN
        RAISE EXCEPTION 'an erasure of a join table is not proved: folds of the version before would bring its changes back';
    END IF;
END $$
"""
_DOWN = """
ALTER TABLE prism_record_objects DROP COLUMN erasure_id;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    """Refused while an erasure of a join table is not proved."""
    op.execute(_REFUSE)
    op.execute(_DOWN)
