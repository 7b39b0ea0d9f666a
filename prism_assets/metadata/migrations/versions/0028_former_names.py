"""The names that renamed tables had before: Glue shows them beside the present one for a while."""

from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

# `end_time` is when readers should have learned the present name, `remove_time` when the catalog forgot this one.
_UP = """
CREATE TABLE prism_former_names (
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    end_time timestamptz NOT NULL,
    remove_time timestamptz,
    PRIMARY KEY (prism_table_id, schema_name, table_name)
);
CREATE UNIQUE INDEX prism_former_names_shown ON prism_former_names (schema_name, table_name) WHERE remove_time IS NULL;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute("DROP TABLE prism_former_names")
