"""What each publisher shows of each partition, in a table of its own; that of Glue stood in the partition's row."""

from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None

_UP = """
-- Before anything else, so that nobody who holds a row of it waits for this while this waits for them.
LOCK TABLE prism_partitions IN ACCESS EXCLUSIVE MODE;
CREATE TABLE prism_publications (
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    publisher text NOT NULL,
    version bigint NOT NULL,
    published_object_id bigint NOT NULL,
    revision integer NOT NULL,
    dirty boolean NOT NULL,
    publish_time timestamptz,
    PRIMARY KEY (prism_partition_id, publisher)
);
INSERT INTO prism_publications
    (prism_partition_id, publisher, version, published_object_id, revision, dirty, publish_time)
SELECT prism_partition_id, 'glue', current_manifest_version, coalesce(published_object_id, 0), published_revision,
    last_live_object_id IS NOT NULL AND (coalesce(published_object_id, 0) < last_object_id
        OR switched AND current_manifest_version < desired_manifest_version OR published_revision < revision),
    published_time
FROM prism_partitions WHERE current_manifest_version >= 0 OR last_live_object_id IS NOT NULL;
CREATE INDEX prism_publications_dirty ON prism_publications (prism_partition_id) WHERE dirty;

DROP INDEX prism_partitions_work;
ALTER TABLE prism_partitions DROP COLUMN current_manifest_version, DROP COLUMN published_object_id,
    DROP COLUMN published_time, DROP COLUMN published_revision;
CREATE INDEX prism_partitions_unswitched ON prism_partitions (prism_table_id) WHERE NOT switched;

-- Whatever changes what a closed partition should show has the next catalog run look at it: in the transaction that
-- changes it, under the lock of its row, whoever does it (a worker of the version before, say).
CREATE FUNCTION prism_mark_publications() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE prism_publications SET dirty = true WHERE prism_partition_id = NEW.prism_partition_id AND NOT dirty;
    INSERT INTO prism_publications (prism_partition_id, publisher, version, published_object_id, revision, dirty)
        VALUES (NEW.prism_partition_id, 'glue', -1, 0, 0, true) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER prism_partitions_mark
    AFTER UPDATE OF last_object_id, last_live_object_id, switched, desired_manifest_version, revision ON prism_partitions
    FOR EACH ROW WHEN (NEW.last_live_object_id IS NOT NULL AND
        (NEW.last_object_id, NEW.last_live_object_id, NEW.switched, NEW.desired_manifest_version, NEW.revision)
        IS DISTINCT FROM
        (OLD.last_object_id, OLD.last_live_object_id, OLD.switched, OLD.desired_manifest_version, OLD.revision))
    EXECUTE FUNCTION prism_mark_publications();

-- A partition with what Glue shows of it, by the names that the code has for it. OFFSET 0 has the row looked up by its
-- key for each partition: the planner, which takes few partitions for many, would read all publications there are.
CREATE VIEW prism_partition_states AS
SELECT p.prism_partition_id AS partition_id, p.prism_table_id AS table_id, p.partition_date AS date,
    coalesce(q.version, -1) AS current_version, p.desired_manifest_version AS desired_version, p.last_live_object_id,
    p.switched, p.closing_batch_id, q.published_object_id, p.last_object_id,
    p.revision, coalesce(q.revision, 0) AS published_revision
FROM prism_partitions p LEFT JOIN LATERAL (
    SELECT * FROM prism_publications WHERE prism_partition_id = p.prism_partition_id AND publisher = 'glue' OFFSET 0
) q ON true;
"""
_DOWN = """
DROP VIEW prism_partition_states;
DROP TRIGGER prism_partitions_mark ON prism_partitions;
DROP FUNCTION prism_mark_publications();
DROP INDEX prism_partitions_unswitched;
ALTER TABLE prism_partitions ADD COLUMN current_manifest_version bigint NOT NULL DEFAULT -1,
    ADD COLUMN published_object_id bigint, ADD COLUMN published_time timestamptz,
    ADD COLUMN published_revision integer NOT NULL DEFAULT 0;
UPDATE prism_partitions p SET current_manifest_version = q.version, published_object_id = q.published_object_id,
    published_time = q.publish_time, published_revision = q.revision
FROM prism_publications q WHERE q.prism_partition_id = p.prism_partition_id AND q.publisher = 'glue';
CREATE INDEX prism_partitions_work ON prism_partitions (prism_table_id)
    WHERE NOT switched OR current_manifest_version < desired_manifest_version
        OR coalesce(published_object_id, 0) < last_object_id OR published_revision < revision;
DROP TABLE prism_publications;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
