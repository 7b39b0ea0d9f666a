"""Iceberg: what each table's snapshots are known to list, the catalog of the tables, and dirty days of open ones."""

from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

_UP = """
-- The catalog as clients of Iceberg lay it out, for readers that connect to this database. One that is there stays.
CREATE TABLE IF NOT EXISTS iceberg_tables (
    catalog_name varchar(255) NOT NULL,
    table_namespace varchar(255) NOT NULL,
    table_name varchar(255) NOT NULL,
    metadata_location varchar(1000),
    previous_metadata_location varchar(1000),
    iceberg_type varchar(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
    catalog_name varchar(255) NOT NULL,
    namespace varchar(255) NOT NULL,
    property_key varchar(255) NOT NULL,
    property_value varchar(1000) NOT NULL,
    PRIMARY KEY (catalog_name, namespace, property_key)
);

CREATE TABLE prism_iceberg_tables (
    prism_table_id bigint PRIMARY KEY REFERENCES prism_tables,
    identifier text NOT NULL,
    table_uuid uuid,
    metadata_location text,
    snapshot_id bigint,
    sequence_number bigint NOT NULL DEFAULT 0,
    oldest_sequence_number bigint NOT NULL DEFAULT 0,
    snapshots integer NOT NULL DEFAULT 0,
    definition_version integer NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'foreign', 'failed')),
    last_error text,
    commit_time timestamptz,
    look_time timestamptz
);
CREATE TABLE prism_iceberg_log (
    prism_iceberg_log_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    snapshot_id bigint,
    operation text,
    files_in bigint NOT NULL,
    files_out bigint NOT NULL,
    rows_in bigint NOT NULL,
    rows_out bigint NOT NULL,
    seconds double precision NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('committed', 'settled', 'refused')),
    message text,
    foreign_snapshots integer NOT NULL DEFAULT 0,
    worker text NOT NULL,
    commit_time timestamptz NOT NULL
);
CREATE INDEX prism_iceberg_log_table ON prism_iceberg_log (prism_table_id, prism_iceberg_log_id);

ALTER TABLE prism_materializations ADD COLUMN iceberg bigint NOT NULL DEFAULT 0;

ALTER TABLE prism_leases DROP CONSTRAINT prism_leases_kind_check,
    ADD CONSTRAINT prism_leases_kind_check CHECK (kind IN ('catalog', 'iceberg', 'repair'));

-- How often the object of a range was rewritten, under a key of its own each time. An extended range begins anew, also
-- where a merge of the version before extends it.
ALTER TABLE prism_merge_ranges ADD COLUMN revision integer NOT NULL DEFAULT 0;
CREATE FUNCTION prism_begin_range_anew() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.revision := 0;
    RETURN NEW;
END $$;
CREATE TRIGGER prism_merge_ranges_revision BEFORE UPDATE OF upper_bound ON prism_merge_ranges
    FOR EACH ROW WHEN (NEW.upper_bound > OLD.upper_bound AND NEW.revision <> 0)
    EXECUTE FUNCTION prism_begin_range_anew();

DROP INDEX prism_publications_dirty;
CREATE INDEX prism_publications_dirty ON prism_publications (publisher, prism_partition_id) WHERE dirty;

-- Glue shows a manifest from the close on, and the live prefix before, which needs no call. Iceberg lists every object
-- in any state of a day, and nothing else decides what it lists. Either is marked in the transaction that changes it,
-- under the lock of the partition's row, whoever does it.
CREATE OR REPLACE FUNCTION prism_mark_publications() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.last_live_object_id IS NOT NULL THEN
        INSERT INTO prism_publications AS q
            (prism_partition_id, publisher, version, published_object_id, revision, dirty)
        VALUES (NEW.prism_partition_id, 'glue', -1, 0, 0, true)
        ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET dirty = true WHERE NOT q.dirty;
    END IF;
    IF (NEW.last_object_id, NEW.desired_manifest_version, NEW.revision)
        IS DISTINCT FROM (OLD.last_object_id, OLD.desired_manifest_version, OLD.revision) THEN
        INSERT INTO prism_publications AS q
            (prism_partition_id, publisher, version, published_object_id, revision, dirty)
        SELECT NEW.prism_partition_id, 'iceberg', -1, 0, 0, true
        FROM prism_iceberg_tables t WHERE t.prism_table_id = NEW.prism_table_id
        ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET dirty = true WHERE NOT q.dirty;
    END IF;
    RETURN NULL;
END $$;
DROP TRIGGER prism_partitions_mark ON prism_partitions;
CREATE TRIGGER prism_partitions_mark
    AFTER UPDATE OF last_object_id, last_live_object_id, switched, desired_manifest_version, revision ON prism_partitions
    FOR EACH ROW WHEN (
        (NEW.last_object_id, NEW.last_live_object_id, NEW.switched, NEW.desired_manifest_version, NEW.revision)
        IS DISTINCT FROM
        (OLD.last_object_id, OLD.last_live_object_id, OLD.switched, OLD.desired_manifest_version, OLD.revision))
    EXECUTE FUNCTION prism_mark_publications();
"""
_DOWN = """
DROP TRIGGER prism_partitions_mark ON prism_partitions;
CREATE OR REPLACE FUNCTION prism_mark_publications() RETURNS trigger LANGUAGE plpgsql AS $$
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
DROP INDEX prism_publications_dirty;
CREATE INDEX prism_publications_dirty ON prism_publications (prism_partition_id) WHERE dirty;
DROP TRIGGER prism_merge_ranges_revision ON prism_merge_ranges;
DROP FUNCTION prism_begin_range_anew();
ALTER TABLE prism_merge_ranges DROP COLUMN revision;
DELETE FROM prism_leases WHERE kind = 'iceberg';
ALTER TABLE prism_leases DROP CONSTRAINT prism_leases_kind_check,
    ADD CONSTRAINT prism_leases_kind_check CHECK (kind IN ('catalog', 'repair'));
DELETE FROM prism_publications WHERE publisher = 'iceberg';
ALTER TABLE prism_materializations DROP COLUMN iceberg;
DROP TABLE prism_iceberg_log;
DROP TABLE prism_iceberg_tables;
DROP TABLE iceberg_namespace_properties;
DROP TABLE iceberg_tables;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
