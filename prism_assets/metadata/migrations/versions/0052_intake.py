"""Patterns of streams, and what their listings found: objects at all, objects left out, or a bucket that is gone."""

from alembic import op

revision = "0052"
down_revision = "0051"
branch_labels = None
depends_on = None

# An earlier listing has found objects if it counted some, or if its position is the key of one.
_UP = """
ALTER TABLE prism_streams
    ADD COLUMN include_patterns text[] NOT NULL DEFAULT '{}',
    ADD COLUMN exclude_patterns text[] NOT NULL DEFAULT '{}',
    ADD COLUMN found_any boolean NOT NULL DEFAULT false;
ALTER TABLE prism_stream_scans
    ADD COLUMN first_time timestamptz,
    ADD COLUMN left_out jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN error_time timestamptz,
    ADD COLUMN last_error text;
UPDATE prism_stream_scans SET first_time = scan_time;
UPDATE prism_streams s SET found_any = true FROM prism_stream_scans x
WHERE x.prism_stream_id = s.prism_stream_id AND (x.object_count > 0 OR x.position_key IS NOT NULL);
ALTER TABLE prism_stream_scans ALTER COLUMN first_time SET NOT NULL;
"""
_DOWN = """
ALTER TABLE prism_stream_scans
    DROP COLUMN last_error, DROP COLUMN error_time, DROP COLUMN left_out, DROP COLUMN first_time;
ALTER TABLE prism_streams DROP COLUMN found_any, DROP COLUMN exclude_patterns, DROP COLUMN include_patterns;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
