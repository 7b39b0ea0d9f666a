"""Clients of DuckLake see columns in the order of the table file."""

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


def upgrade() -> None:
    op.execute(_COLUMNS.format(order="c.place"))


def downgrade() -> None:
    op.execute(_COLUMNS.format(order="c.column_id"))
