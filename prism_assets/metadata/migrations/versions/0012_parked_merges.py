"""Merges that are parked are tried again by themselves, and are charged with deaths only behind a probe."""

from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE prism_merge_jobs
    -- When a parked job is tried again by itself. Null: when somebody asks for it.
    ADD COLUMN retry_time timestamptz CHECK (retry_time IS NULL OR parked),
    -- Whether the engine was seen to work after the job was claimed and before it was begun.
    ADD COLUMN probed boolean NOT NULL DEFAULT false;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute("ALTER TABLE prism_merge_jobs DROP COLUMN retry_time, DROP COLUMN probed")
