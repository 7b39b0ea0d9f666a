"""Fields of lines that no column reads: counted by table, key and kind."""

from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None

_UP = """
-- At most 500 keys a table. The object and line are where a field was seen last; no value is kept.
CREATE TABLE prism_undefined_fields (
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    field_key text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    field_count bigint NOT NULL CHECK (field_count > 0),
    first_time timestamptz NOT NULL,
    last_time timestamptz NOT NULL,
    bucket_name text NOT NULL,
    object_key text NOT NULL,
    line bigint NOT NULL,
    PRIMARY KEY (prism_table_id, field_key, kind)
);
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    """What was counted is lost, and counted anew after another upgrade."""
    op.execute("DROP TABLE prism_undefined_fields")
