"""Folds: objects of the records of join tables, which fold wrote and replaced them, and what folds have taken."""

from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

_UP = """
-- A fold of a join table. Its number is in the keys of what it writes, and the version of the publications of the days
-- that it changes.
CREATE TABLE prism_folds (
    prism_fold_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    definition_version integer NOT NULL,
    settle_before timestamptz,
    state text NOT NULL CHECK (state IN ('running', 'done', 'dropped')),
    worker text NOT NULL,
    start_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    finish_time timestamptz,
    changes_in bigint NOT NULL DEFAULT 0,
    changes_folded bigint NOT NULL DEFAULT 0,
    changes_unsequenced bigint NOT NULL DEFAULT 0,
    records_settled bigint NOT NULL DEFAULT 0,
    rows_written bigint NOT NULL DEFAULT 0,
    bytes_written bigint NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX prism_folds_running ON prism_folds (prism_table_id) WHERE state = 'running';
CREATE INDEX prism_folds_table ON prism_folds (prism_table_id, prism_fold_id);

-- Up to which small object the changes of a day of a log of changes are taken.
CREATE TABLE prism_fold_positions (
    prism_partition_id bigint PRIMARY KEY REFERENCES prism_partitions,
    folded_object_id bigint NOT NULL
);

-- What folds wrote: records of a day, or changes that wait. The last fold that changed a day wrote what is not replaced.
CREATE TABLE prism_record_objects (
    prism_record_object_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    prism_partition_id bigint REFERENCES prism_partitions,
    date date NOT NULL,
    part text NOT NULL CHECK (part IN ('visible', 'hidden', 'pending')),
    bucket_number integer NOT NULL,
    cohort integer NOT NULL,
    fold_id bigint NOT NULL REFERENCES prism_folds,
    replaced_by bigint REFERENCES prism_folds,
    content_length bigint NOT NULL,
    row_count bigint NOT NULL CHECK (row_count > 0),
    min_time timestamptz,
    max_time timestamptz,
    fingerprint bigint NOT NULL,
    file_format smallint NOT NULL,
    metrics jsonb,
    definition_version integer NOT NULL,
    earliest_settle timestamptz,
    latest_settle timestamptz,
    oldest_change timestamptz,
    is_settled boolean NOT NULL DEFAULT false,
    UNIQUE (fold_id, part, date, bucket_number, cohort),
    CHECK ((part = 'pending') = (prism_partition_id IS NULL)),
    CHECK (replaced_by IS NULL OR replaced_by > fold_id)
);
CREATE INDEX prism_record_objects_shown ON prism_record_objects (prism_partition_id)
    WHERE replaced_by IS NULL AND part = 'visible';
CREATE INDEX prism_record_objects_open ON prism_record_objects (prism_table_id, bucket_number)
    WHERE replaced_by IS NULL AND NOT is_settled;

ALTER TABLE prism_materializations ADD COLUMN records bigint NOT NULL DEFAULT 0;

ALTER TABLE prism_leases DROP CONSTRAINT prism_leases_kind_check,
    ADD CONSTRAINT prism_leases_kind_check
        CHECK (kind IN ('catalog', 'erase', 'fold', 'gc', 'iceberg', 'rebuild', 'repair'));
"""
_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_folds) THEN
        RAISE EXCEPTION 'changes were folded: the version before does not know what their records are';
    END IF;
END $$
"""
_DOWN = """
DELETE FROM prism_leases WHERE kind = 'fold';
ALTER TABLE prism_leases DROP CONSTRAINT prism_leases_kind_check,
    ADD CONSTRAINT prism_leases_kind_check CHECK (kind IN ('catalog', 'erase', 'gc', 'iceberg', 'rebuild', 'repair'));
ALTER TABLE prism_materializations DROP COLUMN records;
DROP TABLE prism_record_objects;
DROP TABLE prism_fold_positions;
DROP TABLE prism_folds;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    """Refused once there is a fold."""
    op.execute(_REFUSE)
    op.execute(_DOWN)
