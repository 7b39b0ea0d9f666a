"""Rebuilds: days made again from their staging objects, what is ready of them, and which keys are theirs."""

from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

_CHECK_GENERATION = """
CREATE OR REPLACE FUNCTION prism_check_generation() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    SELECT o.prism_staging_object_id AS id, a.generation AS written, o.generation AS current INTO wrong
        FROM added a JOIN prism_staging_objects o USING (prism_staging_object_id)
        WHERE a.generation <> o.generation {but} LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'staging object % was begun anew: rows under keys of generation % are not those of generation %;'
            ' stop all workers of older versions', wrong.id, wrong.written, wrong.current
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
"""
# A rebuild commits under its own number, also for objects that had no row of the day.
_OF_REBUILDS = """AND NOT EXISTS (SELECT 1 FROM prism_rebuilds r WHERE r.prism_table_id = o.prism_table_id
            AND r.generation = a.generation AND r.state = 'running')"""
_UP = """
-- A rebuild of a day. Its number is the generation in the keys of what it writes, which no other start of a staging object
-- of the table has, and the revision in those of merged objects.
CREATE TABLE prism_rebuilds (
    prism_rebuild_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    generation integer NOT NULL,
    definition_version integer NOT NULL,
    state text NOT NULL CHECK (state IN ('running', 'done', 'dropped')),
    worker text NOT NULL,
    start_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    finish_time timestamptz,
    UNIQUE (prism_table_id, generation)
);
CREATE UNIQUE INDEX prism_rebuilds_running ON prism_rebuilds (prism_partition_id) WHERE state = 'running';
CREATE INDEX prism_rebuilds_partition ON prism_rebuilds (prism_partition_id);

-- What a running rebuild has ready, so that one that died is gone on with.
CREATE TABLE prism_rebuilt_objects (
    prism_rebuild_id bigint NOT NULL REFERENCES prism_rebuilds,
    prism_staging_object_id bigint NOT NULL REFERENCES prism_staging_objects,
    small_object_id bigint,
    seen_rebuilds integer NOT NULL,
    missing boolean NOT NULL,
    left_out boolean NOT NULL DEFAULT false,
    content_length bigint,
    upload_start_time timestamptz,
    row_count bigint,
    min_time timestamptz,
    max_time timestamptz,
    fingerprint bigint,
    file_format smallint,
    metrics jsonb,
    rows_filtered bigint NOT NULL,
    rows_quarantined bigint NOT NULL,
    quarantined jsonb NOT NULL,
    quarantine_key text,
    value_errors jsonb,
    PRIMARY KEY (prism_rebuild_id, prism_staging_object_id)
);
CREATE INDEX prism_rebuilt_objects_small ON prism_rebuilt_objects (prism_rebuild_id, small_object_id);
CREATE TABLE prism_rebuilt_ranges (
    prism_rebuild_id bigint NOT NULL REFERENCES prism_rebuilds,
    lower_bound bigint NOT NULL,
    upper_bound bigint NOT NULL,
    revision_before integer NOT NULL,
    content_length bigint NOT NULL,
    row_count bigint NOT NULL,
    min_time timestamptz,
    max_time timestamptz,
    fingerprint bigint NOT NULL,
    file_format smallint NOT NULL,
    metrics jsonb,
    definition_version integer NOT NULL,
    PRIMARY KEY (prism_rebuild_id, lower_bound, upper_bound)
);

-- The number of the last rebuild of a day, and how often anything of a staging object was rebuilt.
ALTER TABLE prism_partitions ADD COLUMN rebuild integer NOT NULL DEFAULT 0;
ALTER TABLE prism_staging_objects ADD COLUMN rebuilds integer NOT NULL DEFAULT 0;
CREATE OR REPLACE VIEW prism_partition_states AS
SELECT p.prism_partition_id AS partition_id, p.prism_table_id AS table_id, p.partition_date AS date,
    coalesce(q.version, -1) AS current_version, p.desired_manifest_version AS desired_version, p.last_live_object_id,
    p.switched, p.closing_batch_id, q.published_object_id, p.last_object_id,
    p.revision, coalesce(q.revision, 0) AS published_revision, p.rebuild
FROM prism_partitions p LEFT JOIN LATERAL (
    SELECT * FROM prism_publications WHERE prism_partition_id = p.prism_partition_id AND publisher = 'glue' OFFSET 0
) q ON true;

-- An object without rows takes the place of one whose lines are no rows any more: its id stays in the chain of ranges.
-- Only a rebuild writes such.
ALTER TABLE prism_small_objects DROP CONSTRAINT prism_small_objects_row_count_check,
    ADD CONSTRAINT prism_small_objects_rows CHECK (row_count > 0 OR (row_count = 0 AND generation > 0)) NOT VALID;

-- Merges of a rebuilt day write keys with its number; an extended range has it, too.
DROP TRIGGER prism_merge_ranges_revision ON prism_merge_ranges;
DROP FUNCTION prism_begin_range_anew();

ALTER TABLE prism_leases DROP CONSTRAINT prism_leases_kind_check,
    ADD CONSTRAINT prism_leases_kind_check CHECK (kind IN ('catalog', 'gc', 'iceberg', 'rebuild', 'repair'));
"""
_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_rebuilds WHERE state = 'done') THEN
        RAISE EXCEPTION 'days were rebuilt: the version before would merge and repair them as they were';
    END IF;
END $$
"""
_DOWN = """
DELETE FROM prism_leases WHERE kind = 'rebuild';
ALTER TABLE prism_leases DROP CONSTRAINT prism_leases_kind_check,
    ADD CONSTRAINT prism_leases_kind_check CHECK (kind IN ('catalog', 'gc', 'iceberg', 'repair'));
CREATE FUNCTION prism_begin_range_anew() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.revision := 0;
    RETURN NEW;
END $$;
CREATE TRIGGER prism_merge_ranges_revision BEFORE UPDATE OF upper_bound ON prism_merge_ranges
    FOR EACH ROW WHEN (NEW.upper_bound > OLD.upper_bound AND NEW.revision <> 0)
    EXECUTE FUNCTION prism_begin_range_anew();
ALTER TABLE prism_small_objects DROP CONSTRAINT prism_small_objects_rows,
    ADD CONSTRAINT prism_small_objects_row_count_check CHECK (row_count > 0) NOT VALID;
DROP VIEW prism_partition_states;
ALTER TABLE prism_staging_objects DROP COLUMN rebuilds;
ALTER TABLE prism_partitions DROP COLUMN rebuild;
CREATE VIEW prism_partition_states AS
SELECT p.prism_partition_id AS partition_id, p.prism_table_id AS table_id, p.partition_date AS date,
    coalesce(q.version, -1) AS current_version, p.desired_manifest_version AS desired_version, p.last_live_object_id,
    p.switched, p.closing_batch_id, q.published_object_id, p.last_object_id,
    p.revision, coalesce(q.revision, 0) AS published_revision
FROM prism_partitions p LEFT JOIN LATERAL (
    SELECT * FROM prism_publications WHERE prism_partition_id = p.prism_partition_id AND publisher = 'glue' OFFSET 0
) q ON true;
DROP TABLE prism_rebuilt_ranges;
DROP TABLE prism_rebuilt_objects;
DROP TABLE prism_rebuilds;
"""


def upgrade() -> None:
    op.execute(_UP)
    op.execute(_CHECK_GENERATION.format(but=_OF_REBUILDS))


def downgrade() -> None:
    """Refused once days were rebuilt: the version before knows nothing of their keys."""
    op.execute(_REFUSE)
    op.execute(_CHECK_GENERATION.format(but=""))
    op.execute(_DOWN)
