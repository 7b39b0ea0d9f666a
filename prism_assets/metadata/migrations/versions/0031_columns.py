"""Clients of DuckLake see columns in the order of the table file, and find those that were renamed."""

from alembic import op

revision = "0031"
down_revision = "0030"
branch_labels = None
depends_on = None

# As it was, but for the order: before, it was that in which columns came.
_COLUMNS = """
CREATE OR REPLACE VIEW prism_lake.ducklake_column AS
SELECT c.column_id, CAST(0 AS bigint) AS begin_snapshot, CAST(NULL AS bigint) AS end_snapshot, t.table_id,
    {order} AS column_order, CAST(c.column_name AS varchar) AS column_name, CAST(c.column_type AS varchar) AS column_type,
    CAST(NULL AS varchar) AS initial_default, CAST(NULL AS varchar) AS default_value, true AS nulls_allowed,
    CAST(NULL AS bigint) AS parent_column, CAST('literal' AS varchar) AS default_value_type, CAST(NULL AS varchar) AS default_value_dialect
FROM prism_lake_tables t CROSS JOIN LATERAL (
    SELECT CAST(c ->> 'column_id' AS bigint) AS column_id, c ->> 'name' AS column_name, CASE c ->> 'type'
        WHEN 'string' THEN 'varchar' WHEN 'json' THEN 'varchar' WHEN 'boolean' THEN 'boolean' WHEN 'smallint' THEN 'int16'
        WHEN 'integer' THEN 'int32' WHEN 'bigint' THEN 'int64' WHEN 'real' THEN 'float32' WHEN 'double' THEN 'float64'
        WHEN 'timestamp' THEN 'timestamptz' WHEN 'date' THEN 'date'
        WHEN 'decimal' THEN 'decimal(' || (c ->> 'precision') || ',' || (c ->> 'scale') || ')' END AS column_type,
        place
    FROM jsonb_array_elements(t.definition -> 'columns') WITH ORDINALITY AS e (c, place)
    UNION ALL SELECT 1000000, 'dt', 'date', 1000000
) c;
"""

# As it was, but that objects have a renamed column under the name that it had first.
_NAMES = """
CREATE OR REPLACE VIEW prism_lake.ducklake_name_mapping AS
SELECT m.mapping_id, c.column_id, CAST(c.source_name AS varchar) AS source_name, c.column_id AS target_field_id,
    CAST(NULL AS bigint) AS parent_column, c.is_partition
FROM prism_lake_mappings m
JOIN prism_table_definitions d ON d.prism_table_id = m.prism_table_id AND d.version = m.definition_version
CROSS JOIN LATERAL (
    SELECT CAST(c ->> 'column_id' AS bigint) AS column_id, {name} AS source_name, false AS is_partition
    FROM jsonb_array_elements(d.definition -> 'columns') c
    UNION ALL SELECT 1000000, 'dt', true
) c;
"""
_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_table_definitions d CROSS JOIN jsonb_array_elements(d.definition -> 'columns') c
        WHERE c ->> 'stored_as' IS NOT NULL) THEN
        RAISE EXCEPTION 'columns were renamed: the version before cannot read the definitions of their tables';
    END IF;
END $$
"""


def upgrade() -> None:
    op.execute(_COLUMNS.format(order="c.place"))
    op.execute(_NAMES.format(name="coalesce(c ->> 'stored_as', c ->> 'name')"))


def downgrade() -> None:
    """Refused once a column was renamed."""
    op.execute(_REFUSE)
    op.execute(_NAMES.format(name="c ->> 'name'"))
    op.execute(_COLUMNS.format(order="c.column_id"))
