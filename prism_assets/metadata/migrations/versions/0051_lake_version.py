"""DuckLake: one number for each state of the catalog, never given to another; drops of tables that were never read."""

from alembic import op

revision = "0051"
down_revision = "0048"
branch_labels = None
depends_on = None

# Open sessions cache the tables by schema_version and ask only for mappings that are not below the last next_file_id.
# If a number goes down, or comes again after a restore, they read a dropped table as empty, or fail. The number
# is therefore counted in a row of its own, as rows of mappings go with their table, and it is at least the clock's
# microseconds, as a restored database would otherwise count the numbers of its lost future once more. The lock on that
# row makes the numbers visible in their order.
_UP = """
CREATE TABLE prism_lake_version (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    number bigint NOT NULL
);
INSERT INTO prism_lake_version (number) SELECT coalesce(max(mapping_id), 0) FROM prism_lake_mappings;

CREATE FUNCTION prism_next_lake_version() RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO prism_lake_version AS v (number) VALUES (CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint))
    ON CONFLICT (is_only) DO UPDATE SET number = greatest(v.number + 1, EXCLUDED.number)
    RETURNING number
$$;

CREATE OR REPLACE FUNCTION prism_map_definition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO prism_lake_mappings (mapping_id, prism_table_id, definition_version) OVERRIDING SYSTEM VALUE
        VALUES (prism_next_lake_version(), NEW.prism_table_id, NEW.version) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;

-- With the first table of a schema goes the id of the schema.
CREATE FUNCTION prism_count_forgotten_table() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM prism_next_lake_version();
    RETURN NULL;
END $$;
CREATE TRIGGER prism_tables_forgotten AFTER DELETE ON prism_tables
    FOR EACH ROW EXECUTE FUNCTION prism_count_forgotten_table();

ALTER TABLE prism_drops ADD COLUMN never_read boolean NOT NULL DEFAULT false;
"""
_SNAPSHOT = """
CREATE OR REPLACE VIEW prism_lake.ducklake_snapshot AS
SELECT CAST(0 AS bigint) AS snapshot_id, now() AS snapshot_time, number AS schema_version,
    CAST(1 AS bigint) << 62 AS next_catalog_id, number + 1 AS next_file_id
FROM (SELECT coalesce(max({source}), 0) AS number FROM {table}) v
"""
_DOWN = """
ALTER TABLE prism_drops DROP COLUMN never_read;
DROP TRIGGER prism_tables_forgotten ON prism_tables;
DROP FUNCTION prism_count_forgotten_table();
CREATE OR REPLACE FUNCTION prism_map_definition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO prism_lake_mappings (prism_table_id, definition_version)
        VALUES (NEW.prism_table_id, NEW.version) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
SELECT setval(pg_get_serial_sequence('prism_lake_mappings', 'mapping_id'), number) FROM prism_lake_version WHERE number > 0;
DROP FUNCTION prism_next_lake_version();
DROP TABLE prism_lake_version;
"""


def upgrade() -> None:
    op.execute(_UP)
    op.execute(_SNAPSHOT.format(source="number", table="prism_lake_version"))


def downgrade() -> None:
    op.execute(_SNAPSHOT.format(source="mapping_id", table="prism_lake_mappings"))
    op.execute(_DOWN)
