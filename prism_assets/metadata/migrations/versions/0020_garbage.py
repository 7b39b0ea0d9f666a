"""When each publication was recorded, so that what it replaced is kept for its readers; intentions to delete."""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

_UP = """
-- Each publication, and when it was recorded, by the clock of the database: what it replaced is shown no more from then
-- on. What was shown before this migration is taken as recorded by it. Not of Iceberg, whose snapshots tell themselves.
CREATE TABLE prism_publication_history (
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    publisher text NOT NULL,
    version bigint NOT NULL,
    published_object_id bigint NOT NULL,
    revision integer NOT NULL,
    record_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (prism_partition_id, publisher, version, published_object_id, revision)
);

-- In the transaction that records it, whoever does that (a worker of the version before, say).
CREATE FUNCTION prism_note_publication() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO prism_publication_history (prism_partition_id, publisher, version, published_object_id, revision)
        VALUES (NEW.prism_partition_id, NEW.publisher, NEW.version, NEW.published_object_id, NEW.revision)
        ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER prism_publications_insert AFTER INSERT ON prism_publications
    FOR EACH ROW WHEN (NEW.version >= 0 AND NEW.publisher <> 'iceberg') EXECUTE FUNCTION prism_note_publication();
CREATE TRIGGER prism_publications_update AFTER UPDATE OF version, published_object_id, revision ON prism_publications
    FOR EACH ROW WHEN (NEW.version >= 0 AND NEW.publisher <> 'iceberg'
        AND (NEW.version, NEW.published_object_id, NEW.revision)
        IS DISTINCT FROM (OLD.version, OLD.published_object_id, OLD.revision))
    EXECUTE FUNCTION prism_note_publication();
-- Behind the triggers, which wait for the publications under way.
INSERT INTO prism_publication_history (prism_partition_id, publisher, version, published_object_id, revision)
    SELECT prism_partition_id, publisher, version, published_object_id, revision
    FROM prism_publications WHERE version >= 0 AND publisher <> 'iceberg';

-- An object is noted before it is deleted (mark_time), and again after it (delete_time). Nobody wrote here before.
ALTER TABLE prism_gc_log ALTER COLUMN delete_time DROP NOT NULL,
    ADD COLUMN prism_table_id bigint REFERENCES prism_tables, ADD COLUMN partition_date date,
    ADD COLUMN last_modified timestamptz, ADD COLUMN mark_time timestamptz;
CREATE UNIQUE INDEX prism_gc_log_marked ON prism_gc_log (bucket_name, object_key) WHERE delete_time IS NULL;
CREATE INDEX prism_gc_log_table ON prism_gc_log (prism_table_id, delete_time);

ALTER TABLE prism_leases DROP CONSTRAINT prism_leases_kind_check,
    ADD CONSTRAINT prism_leases_kind_check CHECK (kind IN ('catalog', 'gc', 'iceberg', 'repair'));
"""
_DOWN = """
DELETE FROM prism_leases WHERE kind = 'gc';
ALTER TABLE prism_leases DROP CONSTRAINT prism_leases_kind_check,
    ADD CONSTRAINT prism_leases_kind_check CHECK (kind IN ('catalog', 'iceberg', 'repair'));
DELETE FROM prism_gc_log WHERE delete_time IS NULL;
DROP INDEX prism_gc_log_table;
DROP INDEX prism_gc_log_marked;
ALTER TABLE prism_gc_log DROP COLUMN prism_table_id, DROP COLUMN partition_date, DROP COLUMN last_modified,
    DROP COLUMN mark_time, ALTER COLUMN delete_time SET NOT NULL;
DROP TRIGGER prism_publications_update ON prism_publications;
DROP TRIGGER prism_publications_insert ON prism_publications;
DROP FUNCTION prism_note_publication();
DROP TABLE prism_publication_history;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
