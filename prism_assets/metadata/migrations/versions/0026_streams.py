"""What becomes of the objects that arrive at a stream: converted, kept waiting or discarded."""

from alembic import op

from prism_assets.metadata.migrations.indexes import build_index

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

# A stream that is not enabled was one of two: its file says so, or no file names it any more. May be done again.
_UP = """
ALTER TABLE prism_streams ADD COLUMN IF NOT EXISTS removed boolean NOT NULL DEFAULT false,
    ADD COLUMN IF NOT EXISTS moved boolean NOT NULL DEFAULT false;
UPDATE prism_streams s SET removed = true WHERE NOT enabled AND NOT EXISTS (
    SELECT 1 FROM prism_tables t
    JOIN prism_table_definitions d ON d.prism_table_id = t.prism_table_id AND d.version = t.definition_version
    CROSS JOIN LATERAL jsonb_array_elements(d.definition -> 'streams') f
    WHERE t.prism_table_id = s.prism_table_id
        AND f ->> 'bucket' = s.bucket_name AND f ->> 'key_prefix' = s.key_prefix);

-- `moved`: it fed another table before, which objects that were begun then still belong to.
-- What becomes of an object that no batch has claimed yet. What one has begun is always finished.
ALTER TABLE prism_streams ADD COLUMN IF NOT EXISTS intake text GENERATED ALWAYS AS (
    CASE WHEN NOT enabled AND NOT removed THEN 'wait' WHEN discard THEN 'discard' ELSE 'convert' END) STORED;
"""
_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_streams s CROSS JOIN LATERAL (
        SELECT 1 FROM prism_staging_objects o
        WHERE o.prism_stream_id = s.prism_stream_id AND o.state = 'pending' LIMIT 1) o WHERE s.intake <> 'convert') THEN
        RAISE EXCEPTION 'objects wait at streams that are stopped or discarded: the version before would convert them';
    END IF;
END $$
"""
_DOWN = """
DROP INDEX prism_staging_objects_begun;
ALTER TABLE prism_streams DROP COLUMN intake, DROP COLUMN removed, DROP COLUMN moved;
"""


def upgrade() -> None:
    build_index(
        "prism_staging_objects_begun",
        "prism_staging_objects",
        "(prism_stream_id, prism_staging_object_id) WHERE state = 'pending' AND (first_batch_id IS NOT NULL OR generation > 0)",
    )
    op.execute(_UP)


def downgrade() -> None:
    """Refused as long as objects wait that the version before would convert."""
    op.execute(_REFUSE)
    op.execute(_DOWN)
