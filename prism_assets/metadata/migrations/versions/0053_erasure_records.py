"""Erasures as the lake records them: which of them PostgreSQL has, and which it lacks after it was set back."""

from alembic import op

revision = "0053"
down_revision = "0052"
branch_labels = None
depends_on = None

_UP = """
-- `rules` holds the rules of an erasure that is announced and not in force yet. No foreign key leads to its table:
-- records outlive tables, as a restore may bring a dropped table back.
CREATE TABLE prism_erasure_records (
    record_name text PRIMARY KEY,
    folder text NOT NULL,
    digest text NOT NULL,
    create_time timestamptz NOT NULL,
    state text NOT NULL CHECK (state IN ('announced', 'in_force', 'missing', 'repeated', 'withdrawn')),
    column_names text[] NOT NULL DEFAULT '{}',
    rules jsonb,
    was_missing boolean NOT NULL DEFAULT false,
    state_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((state = 'announced') = (rules IS NOT NULL))
);
CREATE INDEX prism_erasure_records_open ON prism_erasure_records (folder, digest)
    WHERE state IN ('announced', 'missing', 'repeated');
"""
_DOWN = """
DROP TABLE prism_erasure_records;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
