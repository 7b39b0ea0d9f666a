"""Leases of catalog runs and repairs, a note for each run that touches the catalog, and the last full comparison.

A catalog run of the former version fails before it touches the catalog, as the column that it counts in is gone. One
that is under way may have a call on its way: it gets a note as if that call began now.
"""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

_UP = """
-- The right to publish a table, or to repair a partition, alone: taken over when its holder is silent for too long.
CREATE TABLE prism_leases (
    kind text NOT NULL CHECK (kind IN ('catalog', 'repair')),
    subject_id bigint NOT NULL,
    lease_token uuid NOT NULL,
    worker text NOT NULL,
    start_time timestamptz NOT NULL,
    heartbeat_time timestamptz NOT NULL,
    PRIMARY KEY (kind, subject_id)
);

-- A run that touches the catalog, from before its first call until it saw that all went well. Behind expire_time none
-- of its calls can land any more: it is in the future while a call is on its way, or was never answered.
CREATE TABLE prism_publication_notes (
    prism_publication_note_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    lease_token uuid NOT NULL,
    worker text NOT NULL,
    start_time timestamptz NOT NULL,
    expire_time timestamptz NOT NULL
);
CREATE INDEX prism_publication_notes_table ON prism_publication_notes (prism_table_id);

INSERT INTO prism_publication_notes (prism_table_id, lease_token, worker, start_time, expire_time)
    SELECT prism_table_id, gen_random_uuid(), 'a former version', clock_timestamp(),
        clock_timestamp() + interval '10 minutes' FROM prism_tables WHERE unsettled_publications > 0;
ALTER TABLE prism_tables DROP COLUMN unsettled_publications;

-- When a run that found the catalog as recorded, or put it right, began to compare. Tables of before are compared soon.
ALTER TABLE prism_tables ADD COLUMN compared_time timestamptz NOT NULL DEFAULT 'epoch';
ALTER TABLE prism_tables ALTER COLUMN compared_time SET DEFAULT clock_timestamp();
"""

_DOWN = """
ALTER TABLE prism_tables DROP COLUMN compared_time;
ALTER TABLE prism_tables ADD COLUMN unsettled_publications integer NOT NULL DEFAULT 0;
UPDATE prism_tables t SET unsettled_publications =
    (SELECT count(*) FROM prism_publication_notes n WHERE n.prism_table_id = t.prism_table_id);
DROP TABLE prism_publication_notes;
DROP TABLE prism_leases;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
