"""Which lake belongs to this database: its place and a random id, which also lies in the lake."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_UP = """
CREATE TABLE prism_installation (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    installation_id text NOT NULL,
    bucket_name text NOT NULL,
    key_prefix text NOT NULL,
    -- Where the store was at the last `prism table apply`. For people: addresses change, the marker decides.
    endpoint text NOT NULL,
    create_time timestamptz NOT NULL,
    -- When the marker was seen in the lake first. Before that the lake is not taken, and nobody works on it.
    mark_time timestamptz
);
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute("DROP TABLE prism_installation")
