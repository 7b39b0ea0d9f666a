"""DuckLake: the catalog as views over what is there, and the definition whose column names each object has."""

from contextlib import nullcontext

from alembic import op
from sqlalchemy import text

from prism_assets.metadata.migrations.indexes import change_tables, execute_alone

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

_AT_ONCE = 50_000

_UP = """
-- Which names the columns have in the objects that were written under a definition. Readers of DuckLake know these as
-- mappings; they keep those that they have read, and ask only for higher ids than any they saw.
CREATE TABLE prism_lake_mappings (
    mapping_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    definition_version integer NOT NULL,
    UNIQUE (prism_table_id, definition_version),
    FOREIGN KEY (prism_table_id, definition_version) REFERENCES prism_table_definitions (prism_table_id, version)
);

-- In the transaction that stores the definition, whoever does that.
CREATE FUNCTION prism_map_definition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO prism_lake_mappings (prism_table_id, definition_version)
        VALUES (NEW.prism_table_id, NEW.version) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER prism_table_definitions_mapping AFTER INSERT ON prism_table_definitions
    FOR EACH ROW EXECUTE FUNCTION prism_map_definition();
INSERT INTO prism_lake_mappings (prism_table_id, definition_version)
    SELECT prism_table_id, version FROM prism_table_definitions ORDER BY prism_table_id, version;

ALTER TABLE prism_small_objects ADD COLUMN definition_version integer;
ALTER TABLE prism_merge_ranges ADD COLUMN definition_version integer;

-- What a worker of the version before commits: the definition is that of the staging object.
CREATE FUNCTION prism_fill_small_definition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT coalesce(o.definition_version, t.definition_version) INTO NEW.definition_version
        FROM prism_staging_objects o JOIN prism_tables t USING (prism_table_id)
        WHERE o.prism_staging_object_id = NEW.prism_staging_object_id;
    RETURN NEW;
END $$;
CREATE TRIGGER prism_small_objects_definition BEFORE INSERT ON prism_small_objects
    FOR EACH ROW WHEN (NEW.definition_version IS NULL) EXECUTE FUNCTION prism_fill_small_definition();

-- Of a merge of the version before nobody knows the definition. Any behind it does, as names never changed so far; but
-- a range that it extends would keep the definition from before, under which added columns are read as null.
CREATE FUNCTION prism_fill_range_definition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT 1 FROM prism_merge_ranges
        WHERE prism_partition_id = NEW.prism_partition_id AND lower_bound = NEW.lower_bound) THEN
        RAISE EXCEPTION 'a merged object was extended by a worker of an older version, which does not say under which'
            ' definition: stop all workers of older versions' USING ERRCODE = 'check_violation';
    END IF;
    SELECT t.definition_version INTO NEW.definition_version FROM prism_partitions p JOIN prism_tables t USING (prism_table_id)
        WHERE p.prism_partition_id = NEW.prism_partition_id;
    RETURN NEW;
END $$;
CREATE TRIGGER prism_merge_ranges_definition BEFORE INSERT ON prism_merge_ranges
    FOR EACH ROW WHEN (NEW.definition_version IS NULL AND NEW.lower_bound IS NOT NULL)
    EXECUTE FUNCTION prism_fill_range_definition();
"""

_FILL_RANGES = """
UPDATE prism_merge_ranges r SET definition_version = t.definition_version
FROM prism_partitions p JOIN prism_tables t USING (prism_table_id)
WHERE p.prism_partition_id = r.prism_partition_id AND r.lower_bound IS NOT NULL AND r.definition_version IS NULL
"""
_FILL_SMALL = """
UPDATE prism_small_objects s SET definition_version = coalesce(o.definition_version, t.definition_version)
FROM prism_staging_objects o JOIN prism_tables t USING (prism_table_id)
WHERE o.prism_staging_object_id = s.prism_staging_object_id AND s.definition_version IS NULL
    AND s.prism_small_object_id > {low} AND s.prism_small_object_id <= {high}
"""
_CHECKS = {
    "prism_small_objects": "definition_version IS NOT NULL",
    "prism_merge_ranges": "lower_bound IS NULL OR definition_version IS NOT NULL",
}

# What the tables of DuckLake 1.0 have for columns, in the order of its own CREATE TABLE.
_EMPTY = {
    "snapshot_changes": "snapshot_id bigint, changes_made varchar, author varchar, commit_message varchar, commit_extra_info varchar",
    "view": "view_id bigint, view_uuid uuid, begin_snapshot bigint, end_snapshot bigint, schema_id bigint, view_name varchar, dialect varchar, sql varchar, column_aliases varchar",
    "tag": "object_id bigint, begin_snapshot bigint, end_snapshot bigint, key varchar, value varchar",
    "column_tag": "table_id bigint, column_id bigint, begin_snapshot bigint, end_snapshot bigint, key varchar, value varchar",
    "file_variant_stats": "data_file_id bigint, table_id bigint, column_id bigint, variant_path varchar, shredded_type varchar, column_size_bytes bigint, value_count bigint, null_count bigint, min_value varchar, max_value varchar, contains_nan boolean, extra_stats varchar",
    "delete_file": "delete_file_id bigint, table_id bigint, begin_snapshot bigint, end_snapshot bigint, data_file_id bigint, path varchar, path_is_relative boolean, format varchar, delete_count bigint, file_size_bytes bigint, footer_size bigint, encryption_key varchar, partial_max bigint",
    "table_stats": "table_id bigint, record_count bigint, next_row_id bigint, file_size_bytes bigint",
    "table_column_stats": "table_id bigint, column_id bigint, contains_null boolean, contains_nan boolean, min_value varchar, max_value varchar, extra_stats varchar",
    "partition_info": "partition_id bigint, table_id bigint, begin_snapshot bigint, end_snapshot bigint",
    "partition_column": "partition_id bigint, table_id bigint, partition_key_index bigint, column_id bigint, transform varchar",
    "file_partition_value": "data_file_id bigint, table_id bigint, partition_key_index bigint, partition_value varchar",
    "files_scheduled_for_deletion": "data_file_id bigint, path varchar, path_is_relative boolean, schedule_start timestamptz",
    "inlined_data_tables": "table_id bigint, table_name varchar, schema_version bigint",
    "schema_versions": "begin_snapshot bigint, schema_version bigint, table_id bigint",
    "macro": "schema_id bigint, macro_id bigint, macro_name varchar, begin_snapshot bigint, end_snapshot bigint",
    "macro_impl": "macro_id bigint, impl_id bigint, dialect varchar, sql varchar, type varchar",
    "macro_parameters": "macro_id bigint, impl_id bigint, column_id bigint, parameter_name varchar, parameter_type varchar, default_value varchar, default_value_type varchar",
    "sort_info": "sort_id bigint, table_id bigint, begin_snapshot bigint, end_snapshot bigint",
    "sort_expression": "sort_id bigint, table_id bigint, sort_key_index bigint, expression varchar, dialect varchar, sort_direction varchar, null_order varchar",
}

_VIEWS = """
CREATE SCHEMA prism_lake;

-- Where the lake is, as a client that reads its objects writes it: of a lake in folders, the folder.
CREATE VIEW prism_lake_place AS
SELECT CASE WHEN starts_with(endpoint, '/') THEN rtrim(endpoint, '/') || '/' ELSE 's3://' END
    || bucket_name || '/' || key_prefix AS url FROM prism_installation;

-- The tables that are shown, with the definition in force.
CREATE VIEW prism_lake_tables AS
SELECT t.prism_table_id AS table_id, t.schema_name, t.table_name, d.definition,
    coalesce(t.physical_schema_name, t.schema_name) || '.' || coalesce(t.physical_table_name, t.table_name) AS physical
FROM prism_tables t
JOIN prism_table_definitions d ON d.prism_table_id = t.prism_table_id AND d.version = t.definition_version
WHERE coalesce(CAST(d.definition ->> 'ducklake' AS boolean), true);

-- The objects of each day that hold each of its rows once: its ranges, and the small objects above them. Both change in
-- the transaction that raises desired_manifest_version. OFFSET 0 has the objects of a day looked up in the index of its
-- partition: the planner, which takes many days for few, would read all objects there are.
CREATE VIEW prism_lake_files AS
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
WHERE p.desired_manifest_version > 0
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
WHERE p.last_object_id > p.desired_manifest_version;

CREATE VIEW prism_lake.ducklake_metadata AS
SELECT CAST(key AS varchar) AS key, CAST(value AS varchar) AS value, CAST(NULL AS varchar) AS scope, CAST(NULL AS bigint) AS scope_id
FROM prism_lake_place CROSS JOIN LATERAL (VALUES ('version', '1.0'), ('created_by', 'prism_assets'),
    ('data_path', url || 'ducklake/'), ('encrypted', 'false')) AS m (key, value);

-- One snapshot, which is always now. A session that has read mappings reads those again that are not below next_file_id.
CREATE VIEW prism_lake.ducklake_snapshot AS
SELECT CAST(0 AS bigint) AS snapshot_id, now() AS snapshot_time, coalesce(max(mapping_id), 0) AS schema_version,
    CAST(1 AS bigint) << 62 AS next_catalog_id, coalesce(max(mapping_id), 0) + 1 AS next_file_id
FROM prism_lake_mappings;

CREATE VIEW prism_lake.ducklake_schema AS
SELECT (CAST(1 AS bigint) << 40) + (SELECT min(prism_table_id) FROM prism_tables t WHERE t.schema_name = s.schema_name) AS schema_id,
    CAST(md5('prism schema ' || schema_name) AS uuid) AS schema_uuid, CAST(0 AS bigint) AS begin_snapshot,
    CAST(NULL AS bigint) AS end_snapshot, CAST(schema_name AS varchar) AS schema_name,
    CAST(url || 'ducklake/' || schema_name || '/' AS varchar) AS path, false AS path_is_relative
FROM (SELECT DISTINCT schema_name FROM prism_lake_tables) s CROSS JOIN prism_lake_place;

CREATE VIEW prism_lake.ducklake_table AS
SELECT t.table_id, CAST(md5('prism table ' || t.table_id) AS uuid) AS table_uuid, CAST(0 AS bigint) AS begin_snapshot,
    CAST(NULL AS bigint) AS end_snapshot, s.schema_id, CAST(t.table_name AS varchar) AS table_name,
    CAST(l.url || left(md5(t.physical), 4) || '.' || t.physical || '/' AS varchar) AS path, false AS path_is_relative
FROM prism_lake_tables t JOIN prism_lake.ducklake_schema s USING (schema_name) CROSS JOIN prism_lake_place l;

CREATE VIEW prism_lake.ducklake_column AS
SELECT c.column_id, CAST(0 AS bigint) AS begin_snapshot, CAST(NULL AS bigint) AS end_snapshot, t.table_id,
    c.column_id AS column_order, CAST(c.column_name AS varchar) AS column_name, CAST(c.column_type AS varchar) AS column_type,
    CAST(NULL AS varchar) AS initial_default, CAST(NULL AS varchar) AS default_value, true AS nulls_allowed,
    CAST(NULL AS bigint) AS parent_column, CAST('literal' AS varchar) AS default_value_type, CAST(NULL AS varchar) AS default_value_dialect
FROM prism_lake_tables t CROSS JOIN LATERAL (
    SELECT CAST(c ->> 'column_id' AS bigint) AS column_id, c ->> 'name' AS column_name, CASE c ->> 'type'
        WHEN 'string' THEN 'varchar' WHEN 'json' THEN 'varchar' WHEN 'boolean' THEN 'boolean' WHEN 'smallint' THEN 'int16'
        WHEN 'integer' THEN 'int32' WHEN 'bigint' THEN 'int64' WHEN 'real' THEN 'float32' WHEN 'double' THEN 'float64'
        WHEN 'timestamp' THEN 'timestamptz' WHEN 'date' THEN 'date'
        WHEN 'decimal' THEN 'decimal(' || (c ->> 'precision') || ',' || (c ->> 'scale') || ')' END AS column_type
    FROM jsonb_array_elements(t.definition -> 'columns') c
    UNION ALL SELECT 1000000, 'dt', 'date'
) c;

CREATE VIEW prism_lake.ducklake_data_file AS
SELECT f.data_file_id, f.table_id, CAST(0 AS bigint) AS begin_snapshot, CAST(NULL AS bigint) AS end_snapshot,
    CAST(NULL AS bigint) AS file_order, CAST(f.path AS varchar) AS path, true AS path_is_relative,
    CAST('parquet' AS varchar) AS file_format, f.row_count AS record_count, f.content_length AS file_size_bytes,
    CAST(NULL AS bigint) AS footer_size, CAST(0 AS bigint) AS row_id_start, CAST(NULL AS bigint) AS partition_id,
    CAST(NULL AS varchar) AS encryption_key, m.mapping_id, CAST(NULL AS bigint) AS partial_max
FROM prism_lake_tables t JOIN prism_lake_files f USING (table_id)
JOIN prism_lake_mappings m ON m.prism_table_id = f.table_id AND m.definition_version = f.definition_version;

-- What a file without a row has is not known, and it is read.
CREATE VIEW prism_lake.ducklake_file_column_stats AS
SELECT v.data_file_id, v.table_id, v.column_id, CAST(NULL AS bigint) AS column_size_bytes, v.row_count AS value_count,
    CAST(0 AS bigint) AS null_count, CAST(v.min_value AS varchar) AS min_value, CAST(v.max_value AS varchar) AS max_value,
    false AS contains_nan, CAST(NULL AS varchar) AS extra_stats
FROM (
    SELECT f.data_file_id, f.table_id, CAST(1000000 AS bigint) AS column_id, f.row_count, f.day AS min_value, f.day AS max_value
    FROM prism_lake_tables t JOIN prism_lake_files f USING (table_id)
    UNION ALL
    SELECT f.data_file_id, f.table_id, c.column_id, f.row_count,
        to_char(f.min_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00'),
        to_char(f.max_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00')
    FROM prism_lake_tables t
    CROSS JOIN LATERAL (
        SELECT CAST(c ->> 'column_id' AS bigint) AS column_id FROM jsonb_array_elements(t.definition -> 'columns') c
        WHERE c ->> 'name' = t.definition ->> 'partition_column' AND c ->> 'type' = 'timestamp'
    ) c
    JOIN prism_lake_files f USING (table_id)
    WHERE f.min_time IS NOT NULL AND f.max_time IS NOT NULL
) v;

-- Those of hidden tables, too: a session never asks again for ids that are not above all it saw, and such a table may be
-- shown again.
CREATE VIEW prism_lake.ducklake_column_mapping AS
SELECT m.mapping_id, m.prism_table_id AS table_id, CAST('map_by_name' AS varchar) AS type
FROM prism_lake_mappings m;

-- The day is in no file: it is read from the folder in the key.
CREATE VIEW prism_lake.ducklake_name_mapping AS
SELECT m.mapping_id, c.column_id, CAST(c.source_name AS varchar) AS source_name, c.column_id AS target_field_id,
    CAST(NULL AS bigint) AS parent_column, c.is_partition
FROM prism_lake_mappings m
JOIN prism_table_definitions d ON d.prism_table_id = m.prism_table_id AND d.version = m.definition_version
CROSS JOIN LATERAL (
    SELECT CAST(c ->> 'column_id' AS bigint) AS column_id, c ->> 'name' AS source_name, false AS is_partition
    FROM jsonb_array_elements(d.definition -> 'columns') c
    UNION ALL SELECT 1000000, 'dt', true
) c;
"""

# Roles belong to the whole server, and whoever migrates may not be allowed to make any. Another database may make the
# role at the same time. What it may read here is granted where there is one.
_ROLE = """
DO $$
BEGIN
    IF to_regrole('prism_reader') IS NULL THEN
        BEGIN
            CREATE ROLE prism_reader NOLOGIN CONNECTION LIMIT 32;
            ALTER ROLE prism_reader SET default_transaction_read_only = on;
            ALTER ROLE prism_reader SET statement_timeout = '5min';
            ALTER ROLE prism_reader SET idle_in_transaction_session_timeout = '5min';
            ALTER ROLE prism_reader SET idle_session_timeout = '1h';
        EXCEPTION
            WHEN insufficient_privilege THEN
                RAISE WARNING 'the role prism_reader was not made, as % may not make roles: `prism ducklake role` prints what'
                    ' an administrator runs', current_user;
            WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END IF;
    IF to_regrole('prism_reader') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA prism_lake TO prism_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA prism_lake TO prism_reader;
    END IF;
END $$;
"""

_DOWN = """
DROP SCHEMA prism_lake CASCADE;
DROP VIEW prism_lake_files;
DROP VIEW prism_lake_tables;
DROP VIEW prism_lake_place;
DROP TRIGGER prism_merge_ranges_definition ON prism_merge_ranges;
DROP FUNCTION prism_fill_range_definition();
DROP TRIGGER prism_small_objects_definition ON prism_small_objects;
DROP FUNCTION prism_fill_small_definition();
ALTER TABLE prism_merge_ranges DROP COLUMN definition_version;
ALTER TABLE prism_small_objects DROP COLUMN definition_version;
DROP TRIGGER prism_table_definitions_mapping ON prism_table_definitions;
DROP FUNCTION prism_map_definition();
DROP TABLE prism_lake_mappings;
"""


def upgrade() -> None:
    """Objects are told their definition a part at a time, so that nobody waits; a death in the middle has it go on."""
    change_tables(_UP, makes="prism_lake_mappings")
    # What is committed in between can be done again. Objects are looked at while others read and write them.
    with op.get_context().autocommit_block() if _has_objects() else nullcontext():
        _fill()
        for table, condition in _CHECKS.items():
            execute_alone(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_definition")
            execute_alone(f"ALTER TABLE {table} ADD CONSTRAINT {table}_definition CHECK ({condition}) NOT VALID")
            execute_alone(f"ALTER TABLE {table} VALIDATE CONSTRAINT {table}_definition")
    op.execute(_VIEWS)
    for name, columns in _EMPTY.items():
        nothing = ", ".join(
            f"CAST(NULL AS {kind}) AS {column}" for column, kind in (item.split() for item in columns.split(", "))
        )
        op.execute(f"CREATE VIEW prism_lake.ducklake_{name} AS SELECT {nothing} WHERE false")
    op.execute(_ROLE)


def _has_objects() -> bool:
    found = op.get_bind().execute(
        text("SELECT EXISTS (SELECT 1 FROM prism_small_objects) OR EXISTS (SELECT 1 FROM prism_merge_ranges)")
    )
    return bool(found.scalar())


def _fill() -> None:
    query = text(
        "SELECT coalesce(min(prism_small_object_id), 1), coalesce(max(prism_small_object_id), 0) FROM prism_small_objects"
    )
    lowest, highest = op.get_bind().execute(query).one()
    for low in range(lowest - 1, highest, _AT_ONCE):
        execute_alone(_FILL_SMALL.format(low=low, high=low + _AT_ONCE))
    execute_alone(_FILL_RANGES)


def downgrade() -> None:
    """The role stays: other databases of the server may have it, too."""
    op.execute(_DOWN)
