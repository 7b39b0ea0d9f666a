"""Erasures: rules about rows that leave the lake, and objects that were rewritten under other keys."""

from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

# Columns with a constant default come without a look at any row. `erasure_id` says up to which erasure of its table an
# object is known to hold no row that matches; a worker of the version before commits objects with 0, which are searched.
_UP = """
CREATE TABLE prism_erasures (
    prism_erasure_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    predicate text NOT NULL,
    columns jsonb NOT NULL,
    "values" jsonb NOT NULL,
    secrets text[] NOT NULL,
    digest text NOT NULL,
    after_batch_id bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('rewriting', 'publishing', 'waiting', 'proved')),
    create_time timestamptz NOT NULL,
    rewritten_time timestamptz,
    published_time timestamptz,
    proved_time timestamptz,
    look_time timestamptz,
    objects_rewritten bigint NOT NULL DEFAULT 0,
    rows_erased bigint NOT NULL DEFAULT 0,
    lines_erased bigint NOT NULL DEFAULT 0,
    lines_withheld bigint NOT NULL DEFAULT 0,
    proof jsonb,
    last_error text,
    CHECK ((state = 'proved') = (proof IS NOT NULL)),
    UNIQUE (prism_table_id, digest)
);
CREATE INDEX prism_erasures_open ON prism_erasures (prism_table_id) WHERE state <> 'proved';

-- Staging objects that hold rows of an erasure: `certain` where their own small object did, else they are among those
-- that a merged object with such rows was made of.
CREATE TABLE prism_erasure_sources (
    prism_erasure_id bigint NOT NULL REFERENCES prism_erasures,
    prism_staging_object_id bigint NOT NULL REFERENCES prism_staging_objects,
    certain boolean NOT NULL,
    PRIMARY KEY (prism_erasure_id, prism_staging_object_id)
);
CREATE INDEX prism_erasure_sources_staging ON prism_erasure_sources (prism_staging_object_id);

ALTER TABLE prism_small_objects ADD COLUMN revision integer NOT NULL DEFAULT 0,
    ADD COLUMN live_revision integer NOT NULL DEFAULT 0,
    ADD COLUMN rows_erased bigint NOT NULL DEFAULT 0,
    ADD COLUMN erased_fingerprint bigint NOT NULL DEFAULT 0,
    ADD COLUMN erasure_id bigint NOT NULL DEFAULT 0,
    DROP CONSTRAINT prism_small_objects_rows;
ALTER TABLE prism_small_objects ADD CONSTRAINT prism_small_objects_rows
    CHECK (row_count > 0 OR (row_count = 0 AND (generation > 0 OR rows_erased > 0))) NOT VALID;
ALTER TABLE prism_merge_ranges ADD COLUMN rows_erased bigint NOT NULL DEFAULT 0,
    ADD COLUMN erased_fingerprint bigint NOT NULL DEFAULT 0,
    ADD COLUMN erasure_id bigint NOT NULL DEFAULT 0;
ALTER TABLE prism_quarantine ADD COLUMN erasure_id bigint NOT NULL DEFAULT 0;
ALTER TABLE prism_staging_objects ADD COLUMN rows_erased bigint NOT NULL DEFAULT 0,
    ADD CONSTRAINT prism_staging_objects_balance
        CHECK (state <> 'done' OR lines_in = rows_out + rows_quarantined + rows_filtered + rows_erased) NOT VALID,
    DROP CONSTRAINT prism_staging_objects_ledger;
ALTER TABLE prism_leases DROP CONSTRAINT prism_leases_kind_check,
    ADD CONSTRAINT prism_leases_kind_check CHECK (kind IN ('catalog', 'erase', 'gc', 'iceberg', 'rebuild', 'repair'));
"""

# As it was, but for the keys of small objects: those that were rewritten lie beside the delayed ones.
_FILES = """
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
WHERE p.desired_manifest_version > 0 AND p.expire_time IS NULL
UNION ALL
SELECT p.prism_table_id, d.day, f.* FROM prism_partitions p
CROSS JOIN LATERAL (SELECT to_char(p.partition_date, 'YYYY-MM-DD') AS day OFFSET 0) d
CROSS JOIN LATERAL (
    SELECT 2 * s.prism_small_object_id, s.definition_version, s.row_count, s.content_length, s.min_time, s.max_time,
        CASE WHEN {aside} THEN 'delayed' ELSE 'live' END || '/dt=' || d.day || '/prism-'
        || lpad(CAST(s.prism_staging_object_id AS text), 19, '0')
        || CASE WHEN s.generation > 0 THEN '-g' || s.generation ELSE '' END{revision} || '.parquet'
    FROM prism_small_objects s
    WHERE s.prism_partition_id = p.prism_partition_id AND s.prism_small_object_id > p.desired_manifest_version
    OFFSET 0
) f
WHERE p.last_object_id > p.desired_manifest_version AND p.expire_time IS NULL;
"""
_REVISION = "\n        || CASE WHEN s.revision > 0 THEN '-r' || s.revision ELSE '' END"

_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_erasures) THEN
        RAISE EXCEPTION 'rows were erased: the version before would bring them back';
    END IF;
END $$
"""
_DOWN = """
DELETE FROM prism_leases WHERE kind = 'erase';
ALTER TABLE prism_leases DROP CONSTRAINT prism_leases_kind_check,
    ADD CONSTRAINT prism_leases_kind_check CHECK (kind IN ('catalog', 'gc', 'iceberg', 'rebuild', 'repair'));
ALTER TABLE prism_staging_objects DROP CONSTRAINT prism_staging_objects_balance,
    ADD CONSTRAINT prism_staging_objects_ledger
        CHECK (state <> 'done' OR lines_in = rows_out + rows_quarantined + rows_filtered) NOT VALID,
    DROP COLUMN rows_erased;
ALTER TABLE prism_quarantine DROP COLUMN erasure_id;
ALTER TABLE prism_merge_ranges DROP COLUMN rows_erased, DROP COLUMN erased_fingerprint, DROP COLUMN erasure_id;
ALTER TABLE prism_small_objects DROP CONSTRAINT prism_small_objects_rows;
ALTER TABLE prism_small_objects ADD CONSTRAINT prism_small_objects_rows
    CHECK (row_count > 0 OR (row_count = 0 AND generation > 0)) NOT VALID, DROP COLUMN revision, DROP COLUMN live_revision, DROP COLUMN rows_erased,
    DROP COLUMN erased_fingerprint, DROP COLUMN erasure_id;
DROP TABLE prism_erasure_sources;
DROP TABLE prism_erasures;
"""


def upgrade() -> None:
    op.execute(_UP)
    op.execute(_FILES.format(aside="s.delayed OR s.revision > 0", revision=_REVISION))


def downgrade() -> None:
    """Refused once there is an erasure: the version before knows of no rule, nor of objects that were rewritten."""
    op.execute(_REFUSE)
    op.execute(_FILES.format(aside="s.delayed", revision=""))
    op.execute(_DOWN)
