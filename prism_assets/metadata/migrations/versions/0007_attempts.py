"""Batches with tokens, objects that are tried again apart from others, and keys of their own after each new start."""

from alembic import op

from prism_assets.metadata.migrations.indexes import build_index, change_tables

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_UP = """
-- An id may come again after a failover to a replica that lagged; a token does not.
ALTER TABLE prism_stream_batches ADD COLUMN token uuid NOT NULL DEFAULT gen_random_uuid();
-- Whether the engine was seen to work after the batch had claimed its objects and before it was given them.
ALTER TABLE prism_stream_batches ADD COLUMN probed boolean NOT NULL DEFAULT false;

ALTER TABLE prism_staging_objects
    -- Counts new starts: each has keys of its own, so that keys of an earlier one may be removed at any time.
    ADD COLUMN generation integer NOT NULL DEFAULT 0,
    -- Tries that were ended by a fault of the surroundings. They are not among the attempts and only lengthen the pause.
    ADD COLUMN outages integer NOT NULL DEFAULT 0,
    -- The greatest batch that may hold the object: half of the one that died with it. Null: any.
    ADD COLUMN batch_limit integer CHECK (batch_limit > 0),
    -- Another version was seen under the key after this one had been converted. It is not read.
    ADD COLUMN overwritten_time timestamptz,
    -- Somebody has accepted that the object, or its later version, is not read.
    ADD COLUMN dismissed boolean NOT NULL DEFAULT false;
ALTER TABLE prism_small_objects ADD COLUMN generation integer NOT NULL DEFAULT 0;

-- A worker died with the job: it is claimed by itself from now on.
ALTER TABLE prism_merge_jobs ADD COLUMN died boolean NOT NULL DEFAULT false;

-- What attempts may have uploaded for a start of an object that is over: to be removed, and once more after a while,
-- as a task may outlive its driver and upload behind the first removal.
CREATE TABLE prism_abandoned_uploads (
    prism_staging_object_id bigint NOT NULL REFERENCES prism_staging_objects,
    generation integer NOT NULL,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    first_date date NOT NULL,
    last_date date NOT NULL,
    remove_time timestamptz NOT NULL,
    removed boolean NOT NULL DEFAULT false,
    PRIMARY KEY (prism_staging_object_id, generation)
);
CREATE INDEX prism_abandoned_uploads_due ON prism_abandoned_uploads (remove_time);

-- An object that is given up is tried again by itself when it has such a time. That of before is of its last attempt.
UPDATE prism_staging_objects SET retry_time = NULL WHERE state = 'failed';
"""

_DOWN = """
DROP TABLE prism_abandoned_uploads;
ALTER TABLE prism_merge_jobs DROP COLUMN died;
ALTER TABLE prism_small_objects DROP COLUMN generation;
ALTER TABLE prism_staging_objects DROP COLUMN generation, DROP COLUMN outages, DROP COLUMN batch_limit,
    DROP COLUMN overwritten_time, DROP COLUMN dismissed;
ALTER TABLE prism_stream_batches DROP COLUMN token, DROP COLUMN probed;
"""


def upgrade() -> None:
    change_tables(_UP, makes="prism_abandoned_uploads")
    build_index(
        "prism_staging_objects_suspects",
        "prism_staging_objects",
        "(prism_staging_object_id) WHERE state = 'pending' AND batch_limit IS NOT NULL",
    )
    build_index(
        "prism_staging_objects_overwritten",
        "prism_staging_objects",
        "(prism_table_id) WHERE overwritten_time IS NOT NULL AND NOT dismissed",
    )
    build_index(
        "prism_staging_objects_outages",
        "prism_staging_objects",
        "(prism_table_id) WHERE state = 'pending' AND outages >= 10",
    )


def downgrade() -> None:
    op.execute("DROP INDEX prism_staging_objects_outages")
    op.execute("DROP INDEX prism_staging_objects_overwritten")
    op.execute("DROP INDEX prism_staging_objects_suspects")
    op.execute(_DOWN)
