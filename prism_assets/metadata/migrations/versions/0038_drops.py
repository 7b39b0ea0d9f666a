"""Drops: tables that go for good, how far that is, and the names and folders that they had."""

from alembic import op

revision = "0038"
down_revision = "0037"
branch_labels = None
depends_on = None

# A row stays when its table is gone: ids and folders are never given again. So do the log of deletions and the proofs
# of erasures, which name the table by its id.
_UP = """
CREATE TABLE prism_drops (
    prism_table_id bigint PRIMARY KEY,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    physical_schema_name text,
    physical_table_name text,
    state text NOT NULL DEFAULT 'hiding' CHECK (state IN ('hiding', 'deleting', 'forgetting', 'dropped')),
    object_count bigint NOT NULL,
    content_length bigint NOT NULL,
    worker text NOT NULL,
    begin_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    hidden_time timestamptz,
    end_time timestamptz,
    CHECK ((state = 'hiding') = (hidden_time IS NULL)),
    CHECK ((state = 'dropped') = (end_time IS NOT NULL))
);
CREATE INDEX prism_drops_open ON prism_drops (prism_table_id) WHERE state <> 'dropped';
ALTER TABLE prism_gc_log DROP CONSTRAINT prism_gc_log_prism_table_id_fkey;
ALTER TABLE prism_erasures DROP CONSTRAINT prism_erasures_prism_table_id_fkey;
"""
_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_drops WHERE state <> 'dropped') THEN
        RAISE EXCEPTION 'tables are being dropped, which the version before would show again: run `prism gc` until '
            '`prism status` names none';
    END IF;
    IF EXISTS (SELECT 1 FROM prism_erasures e WHERE NOT EXISTS (
            SELECT 1 FROM prism_tables t WHERE t.prism_table_id = e.prism_table_id)) THEN
        RAISE EXCEPTION 'rows were erased from tables that were dropped, and the version before cannot keep the proofs';
    END IF;
END $$
"""
_DOWN = """
UPDATE prism_gc_log SET prism_table_id = NULL
    WHERE prism_table_id IN (SELECT prism_table_id FROM prism_drops WHERE state = 'dropped');
ALTER TABLE prism_gc_log ADD CONSTRAINT prism_gc_log_prism_table_id_fkey
    FOREIGN KEY (prism_table_id) REFERENCES prism_tables;
ALTER TABLE prism_erasures ADD CONSTRAINT prism_erasures_prism_table_id_fkey
    FOREIGN KEY (prism_table_id) REFERENCES prism_tables;
DROP TABLE prism_drops;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    """Refused while a table is being dropped. Folders of tables that were may be given again by the version before."""
    op.execute(_REFUSE)
    op.execute(_DOWN)
