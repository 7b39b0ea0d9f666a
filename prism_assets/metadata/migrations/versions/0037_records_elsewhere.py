"""Clients of DuckLake see the records of join tables, and what a day had after a fold is found by an index."""

from alembic import op

revision = "0037"
down_revision = "0036"
branch_labels = None
depends_on = None

# As it was, and the records of join tables, which have ids of their own: they come above those of all other objects. A
# day of records has neither small objects nor ranges; a fold replaces its objects in one transaction.
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
        CASE WHEN s.delayed OR s.revision > 0 THEN 'delayed' ELSE 'live' END || '/dt=' || d.day || '/prism-'
        || lpad(CAST(s.prism_staging_object_id AS text), 19, '0')
        || CASE WHEN s.generation > 0 THEN '-g' || s.generation ELSE '' END
        || CASE WHEN s.revision > 0 THEN '-r' || s.revision ELSE '' END || '.parquet'
    FROM prism_small_objects s
    WHERE s.prism_partition_id = p.prism_partition_id AND s.prism_small_object_id > p.desired_manifest_version
    OFFSET 0
) f
WHERE p.last_object_id > p.desired_manifest_version AND p.expire_time IS NULL
"""
_RECORDS = """
UNION ALL
SELECT p.prism_table_id, d.day, f.* FROM prism_partitions p
CROSS JOIN LATERAL (SELECT to_char(p.partition_date, 'YYYY-MM-DD') AS day OFFSET 0) d
CROSS JOIN LATERAL (
    SELECT (CAST(1 AS bigint) << 61) + o.prism_record_object_id, o.definition_version, o.row_count, o.content_length,
        o.min_time, o.max_time,
        'records/dt=' || d.day || '/fold-' || lpad(CAST(o.fold_id AS text), 19, '0')
        || '-' || lpad(CAST(o.bucket_number AS text), 5, '0') || '-' || lpad(CAST(o.cohort AS text), 8, '0') || '.parquet'
    FROM prism_record_objects o
    WHERE o.prism_partition_id = p.prism_partition_id AND o.replaced_by IS NULL AND o.part = 'visible'
    OFFSET 0
) f
WHERE p.desired_manifest_version > 0 AND p.last_object_id = 0 AND p.expire_time IS NULL
"""


_INDEX = """
CREATE INDEX prism_record_objects_day ON prism_record_objects (prism_partition_id, fold_id) WHERE part = 'visible'
"""


def upgrade() -> None:
    op.execute(_FILES + _RECORDS)
    op.execute(_INDEX)


def downgrade() -> None:
    op.execute("DROP INDEX prism_record_objects_day")
    op.execute(_FILES)
