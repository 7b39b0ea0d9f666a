"""Retention: from which day on a table takes rows, the days that expired, and when readers were sent there no more."""

from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

# What the field said in definitions that were stored while nothing was done for it shall not begin to delete rows.
_UP = """
UPDATE prism_table_definitions SET definition = jsonb_set(definition, '{retention_days}', 'null')
    WHERE definition ->> 'retention_days' IS NOT NULL;

-- Objects that a batch claims for the first time behind that batch have no rows of days before `retained_from`.
ALTER TABLE prism_tables ADD COLUMN retained_from date, ADD COLUMN retained_batch_id bigint;
ALTER TABLE prism_staging_objects ADD COLUMN retained_from date;

-- By the clock of the database, as everything that readers still use is counted by.
ALTER TABLE prism_partitions ADD COLUMN expire_time timestamptz,
    ADD CONSTRAINT prism_partitions_expired CHECK (expire_time IS NULL OR switched) NOT VALID;
ALTER TABLE prism_publications ADD COLUMN withdraw_time timestamptz;

CREATE OR REPLACE VIEW prism_partition_states AS
SELECT p.prism_partition_id AS partition_id, p.prism_table_id AS table_id, p.partition_date AS date,
    coalesce(q.version, -1) AS current_version, p.desired_manifest_version AS desired_version, p.last_live_object_id,
    p.switched, p.closing_batch_id, q.published_object_id, p.last_object_id,
    p.revision, coalesce(q.revision, 0) AS published_revision, p.rebuild, p.expire_time IS NOT NULL AS expired
FROM prism_partitions p LEFT JOIN LATERAL (
    SELECT * FROM prism_publications WHERE prism_partition_id = p.prism_partition_id AND publisher = 'glue' OFFSET 0
) q ON true;

-- Nothing comes to a day that is expired. By the order of things nothing tries to: this is the last fence.
CREATE FUNCTION prism_keep_expired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the day % of table % is expired, and nothing is added to it', OLD.partition_date, OLD.prism_table_id
        USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER prism_partitions_expired BEFORE UPDATE OF last_object_id, desired_manifest_version, revision ON prism_partitions
    FOR EACH ROW WHEN (OLD.expire_time IS NOT NULL
        AND (NEW.last_object_id, NEW.desired_manifest_version, NEW.revision)
        IS DISTINCT FROM (OLD.last_object_id, OLD.desired_manifest_version, OLD.revision))
    EXECUTE FUNCTION prism_keep_expired();

-- As before, and each catalog looks at a day that expires.
CREATE OR REPLACE FUNCTION prism_mark_publications() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.last_live_object_id IS NOT NULL THEN
        INSERT INTO prism_publications AS q
            (prism_partition_id, publisher, version, published_object_id, revision, dirty)
        VALUES (NEW.prism_partition_id, 'glue', -1, 0, 0, true)
        ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET dirty = true WHERE NOT q.dirty;
    END IF;
    IF (NEW.last_object_id, NEW.desired_manifest_version, NEW.revision, NEW.expire_time)
        IS DISTINCT FROM (OLD.last_object_id, OLD.desired_manifest_version, OLD.revision, OLD.expire_time) THEN
        INSERT INTO prism_publications AS q
            (prism_partition_id, publisher, version, published_object_id, revision, dirty)
        SELECT NEW.prism_partition_id, 'iceberg', -1, 0, 0, true
        FROM prism_iceberg_tables t WHERE t.prism_table_id = NEW.prism_table_id
        ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET dirty = true WHERE NOT q.dirty;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER prism_partitions_expire AFTER UPDATE OF expire_time ON prism_partitions
    FOR EACH ROW WHEN (NEW.expire_time IS DISTINCT FROM OLD.expire_time) EXECUTE FUNCTION prism_mark_publications();
"""
_LAKE_FILES = """
CREATE OR REPLACE VIEW prism_lake_files AS
SELECT p.prism_table_id AS table_id, d.day, f.* FROM prism_partitions p
CROSS JOIN LATERAL (SELECT to_char(p.partition_date, 'YYYY-MM-DD') AS day OFFSET 0) d
CROSS JOIN LATERAL (
    SELECT 2 * r.upper_bound + 1 AS data_file_id, r.definition_version, r.row_count, r.content_length, r.min_time, r.max_time,
        'merged/dt=' || d.day || '/part-' || lpad(CAST(r.lower_bound AS text), 19, '0')
        || '-' || lpad(CAST(r.upper_bound AS text), 19, '0')
        || CASE WHEN r.revision > 0 THEN '-r' || r.revision ELSE '' END || '.parquet' AS path
    FROM prism_merge_ranges r
    WHERE r.prism_partition_id = p.prism_partition_id AND r.lower_bound IS NOT NULL
        AND r.upper_bound <= p.desired_manifest_version
    OFFSET 0
) f
WHERE p.desired_manifest_version > 0{kept}
UNION ALL
SELECT p.prism_table_id, d.day, f.* FROM prism_partitions p
CROSS JOIN LATERAL (SELECT to_char(p.partition_date, 'YYYY-MM-DD') AS day OFFSET 0) d
CROSS JOIN LATERAL (
    SELECT 2 * s.prism_small_object_id, s.definition_version, s.row_count, s.content_length, s.min_time, s.max_time,
        CASE WHEN s.delayed THEN 'delayed' ELSE 'live' END || '/dt=' || d.day || '/prism-'
        || lpad(CAST(s.prism_staging_object_id AS text), 19, '0')
        || CASE WHEN s.generation > 0 THEN '-g' || s.generation ELSE '' END || '.parquet'
    FROM prism_small_objects s
    WHERE s.prism_partition_id = p.prism_partition_id AND s.prism_small_object_id > p.desired_manifest_version
    OFFSET 0
) f
WHERE p.last_object_id > p.desired_manifest_version{kept}
"""
_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_partitions WHERE expire_time IS NOT NULL) THEN
        RAISE EXCEPTION 'days are expired, and what they held is deleted: the version before would show them again';
    END IF;
END $$
"""
_DOWN = """
DROP TRIGGER prism_partitions_expire ON prism_partitions;
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
DROP TRIGGER prism_partitions_expired ON prism_partitions;
DROP FUNCTION prism_keep_expired();
DROP VIEW prism_partition_states;
DROP INDEX prism_partitions_kept;
ALTER TABLE prism_publications DROP COLUMN withdraw_time;
ALTER TABLE prism_partitions DROP COLUMN expire_time;
ALTER TABLE prism_staging_objects DROP COLUMN retained_from;
ALTER TABLE prism_tables DROP COLUMN retained_from, DROP COLUMN retained_batch_id;
CREATE VIEW prism_partition_states AS
SELECT p.prism_partition_id AS partition_id, p.prism_table_id AS table_id, p.partition_date AS date,
    coalesce(q.version, -1) AS current_version, p.desired_manifest_version AS desired_version, p.last_live_object_id,
    p.switched, p.closing_batch_id, q.published_object_id, p.last_object_id,
    p.revision, coalesce(q.revision, 0) AS published_revision, p.rebuild
FROM prism_partitions p LEFT JOIN LATERAL (
    SELECT * FROM prism_publications WHERE prism_partition_id = p.prism_partition_id AND publisher = 'glue' OFFSET 0
) q ON true;
"""


def upgrade() -> None:
    op.execute(_UP)
    op.execute(_LAKE_FILES.format(kept=" AND p.expire_time IS NULL"))
    # Partitions are few: one for each table and day.
    op.execute(
        "CREATE INDEX prism_partitions_kept ON prism_partitions (prism_table_id, partition_date) WHERE expire_time IS NULL"
    )


def downgrade() -> None:
    """Refused once days are expired: the version before would show them again, and their objects are gone."""
    op.execute(_REFUSE)
    op.execute(_LAKE_FILES.format(kept=""))
    op.execute(_DOWN)
