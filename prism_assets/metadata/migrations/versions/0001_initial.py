"""The tables of the protocol, with every constraint the protocol leans on."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_TABLES = """
CREATE TABLE prism_tables (
    prism_table_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    create_time timestamptz NOT NULL,
    merge_interval integer NOT NULL,
    physical_schema_name text,
    physical_table_name text,
    definition_version integer NOT NULL DEFAULT 0,
    -- Publications that were begun and whose end is not known: the catalog may show something older than recorded.
    unsettled_publications integer NOT NULL DEFAULT 0,
    UNIQUE (schema_name, table_name)
);

-- Every definition a table ever had. A staging object is converted under the one in force at its first claim,
-- however often that is tried, so that each attempt writes the same bytes under the same key.
CREATE TABLE prism_table_definitions (
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    version integer NOT NULL,
    definition jsonb NOT NULL,
    create_time timestamptz NOT NULL,
    PRIMARY KEY (prism_table_id, version)
);

CREATE TABLE prism_table_columns (
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    column_id integer NOT NULL CHECK (column_id > 0),
    name text NOT NULL,
    source_name text NOT NULL,
    type text NOT NULL,
    length integer,
    source_offset text,
    zone_offset text,
    time_unit text,
    required boolean NOT NULL,
    position integer NOT NULL,
    add_time timestamptz NOT NULL,
    drop_time timestamptz,
    PRIMARY KEY (prism_table_id, column_id)
);
CREATE UNIQUE INDEX prism_table_columns_name ON prism_table_columns (prism_table_id, name) WHERE drop_time IS NULL;

CREATE TABLE prism_streams (
    prism_stream_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    stream_name text NOT NULL,
    bucket_name text NOT NULL,
    key_prefix text NOT NULL,
    enabled boolean NOT NULL DEFAULT true,
    discard boolean NOT NULL DEFAULT false,
    UNIQUE (bucket_name, key_prefix)
);
CREATE INDEX prism_streams_table ON prism_streams (prism_table_id);

-- Where the listing of each stream stands.
CREATE TABLE prism_stream_scans (
    prism_stream_id bigint PRIMARY KEY REFERENCES prism_streams,
    position_key text,
    scan_time timestamptz NOT NULL,
    full_scan_time timestamptz NOT NULL,
    object_count bigint NOT NULL
);

CREATE TABLE prism_stream_batches (
    prism_stream_batch_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    start_time timestamptz NOT NULL,
    heartbeat_time timestamptz NOT NULL,
    finish_time timestamptz,
    state text NOT NULL CHECK (state IN ('running', 'done', 'dead')),
    worker text NOT NULL
);
CREATE INDEX prism_stream_batches_running ON prism_stream_batches (heartbeat_time) WHERE state = 'running';

CREATE TABLE prism_staging_objects (
    prism_staging_object_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_stream_id bigint NOT NULL REFERENCES prism_streams,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    bucket_name text NOT NULL,
    object_key text NOT NULL,
    etag text,
    content_length bigint NOT NULL,
    send_time timestamptz,
    first_receive_time timestamptz NOT NULL,
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'claimed', 'done', 'failed')),
    attempts integer NOT NULL DEFAULT 0,
    retry_time timestamptz,
    last_error text,
    first_batch_id bigint,
    prism_stream_batch_id bigint REFERENCES prism_stream_batches,
    definition_version integer,
    finish_time timestamptz,
    lines_in bigint,
    rows_out bigint,
    rows_quarantined bigint,
    value_errors jsonb,
    UNIQUE (bucket_name, object_key),
    CHECK (state <> 'done' OR lines_in = rows_out + rows_quarantined),
    CHECK (state <> 'claimed' OR (prism_stream_batch_id IS NOT NULL AND first_batch_id IS NOT NULL))
);
CREATE INDEX prism_staging_objects_pending ON prism_staging_objects (prism_stream_id, prism_staging_object_id)
    WHERE state = 'pending';
CREATE INDEX prism_staging_objects_claimed ON prism_staging_objects (prism_stream_batch_id) WHERE state = 'claimed';
CREATE INDEX prism_staging_objects_failed ON prism_staging_objects (prism_table_id) WHERE state = 'failed';
-- What a partition's close waits for: unfinished objects of a table by the batch that saw them first.
CREATE INDEX prism_staging_objects_unfinished ON prism_staging_objects (prism_table_id, first_batch_id)
    WHERE state IN ('pending', 'claimed') AND first_batch_id IS NOT NULL;

CREATE TABLE prism_unknown_staging_objects (
    prism_unknown_staging_object_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bucket_name text NOT NULL,
    object_key text NOT NULL,
    etag text,
    content_length bigint,
    send_time timestamptz,
    first_receive_time timestamptz NOT NULL,
    message text NOT NULL,
    UNIQUE (bucket_name, object_key)
);

CREATE TABLE prism_partitions (
    prism_partition_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    partition_date date NOT NULL,
    current_manifest_version bigint NOT NULL DEFAULT -1,
    ongoing_manifest_version bigint,
    desired_manifest_version bigint NOT NULL DEFAULT 0,
    last_live_object_id bigint,
    switched boolean NOT NULL DEFAULT false,
    closing_batch_id bigint,
    published_object_id bigint,
    published_time timestamptz,
    -- Highest id of the partition's small objects, kept under the row lock under which they are inserted.
    last_object_id bigint NOT NULL DEFAULT 0,
    UNIQUE (prism_table_id, partition_date),
    CHECK (last_live_object_id IS NULL OR closing_batch_id IS NOT NULL),
    CHECK (NOT switched OR last_live_object_id IS NOT NULL)
);
-- The partitions a catalog run may have to do something about; all others are at rest.
CREATE INDEX prism_partitions_work ON prism_partitions (prism_table_id)
    WHERE NOT switched OR current_manifest_version < desired_manifest_version
        OR coalesce(published_object_id, 0) < last_object_id;

CREATE TABLE prism_small_objects (
    prism_small_object_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_staging_object_id bigint NOT NULL REFERENCES prism_staging_objects,
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    delayed boolean NOT NULL,
    content_length bigint NOT NULL,
    upload_start_time timestamptz NOT NULL,
    commit_time timestamptz NOT NULL DEFAULT now(),
    row_count bigint NOT NULL CHECK (row_count > 0),
    min_time timestamptz NOT NULL,
    max_time timestamptz NOT NULL,
    fingerprint bigint NOT NULL,
    UNIQUE (prism_staging_object_id, prism_partition_id)
);
CREATE INDEX prism_small_objects_partition ON prism_small_objects (prism_partition_id, prism_small_object_id);

CREATE TABLE prism_merge_jobs (
    prism_merge_job_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    schedule_time timestamptz NOT NULL,
    ongoing_mark bigint NOT NULL DEFAULT 0,
    heartbeat_time timestamptz,
    lease_token uuid,
    attempts integer NOT NULL DEFAULT 0,
    last_error text,
    parked boolean NOT NULL DEFAULT false,
    worker text,
    UNIQUE (prism_partition_id, ongoing_mark),
    CHECK (ongoing_mark IN (0, prism_merge_job_id)),
    CHECK ((ongoing_mark = 0) = (lease_token IS NULL))
);
CREATE INDEX prism_merge_jobs_due ON prism_merge_jobs (schedule_time) WHERE ongoing_mark = 0;
CREATE INDEX prism_merge_jobs_running ON prism_merge_jobs (heartbeat_time) WHERE ongoing_mark > 0;

CREATE TABLE prism_merge_job_log (
    prism_merge_job_log_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_merge_job_id bigint NOT NULL,
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    schedule_time timestamptz NOT NULL,
    start_time timestamptz NOT NULL,
    finish_time timestamptz NOT NULL,
    input_objects integer NOT NULL,
    input_bytes bigint NOT NULL,
    output_objects integer NOT NULL,
    output_bytes bigint NOT NULL,
    row_count bigint NOT NULL,
    left_behind integer NOT NULL,
    worker text NOT NULL,
    error text
);
CREATE INDEX prism_merge_job_log_partition ON prism_merge_job_log (prism_partition_id, finish_time);

-- The ranges of a partition are one gapless chain from the sentinel (null, 0): each lower bound is the upper bound
-- of another row of the same partition, and the database itself refuses anything else.
CREATE TABLE prism_merge_ranges (
    prism_merge_range_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    lower_bound bigint,
    upper_bound bigint NOT NULL,
    content_length bigint NOT NULL,
    row_count bigint NOT NULL,
    fingerprint bigint NOT NULL,
    create_time timestamptz NOT NULL,
    update_time timestamptz NOT NULL,
    UNIQUE NULLS NOT DISTINCT (prism_partition_id, lower_bound),
    UNIQUE (prism_partition_id, upper_bound),
    CHECK (upper_bound > lower_bound),
    CHECK (lower_bound IS NOT NULL OR upper_bound = 0),
    FOREIGN KEY (prism_partition_id, lower_bound) REFERENCES prism_merge_ranges (prism_partition_id, upper_bound)
);

CREATE TABLE prism_switch_certificates (
    prism_switch_certificate_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_partition_id bigint NOT NULL UNIQUE REFERENCES prism_partitions,
    switch_time timestamptz NOT NULL,
    upper_bound bigint NOT NULL,
    live_objects bigint NOT NULL,
    live_rows bigint NOT NULL,
    live_fingerprint bigint NOT NULL,
    covered_objects bigint NOT NULL,
    covered_rows bigint NOT NULL,
    covered_fingerprint bigint NOT NULL,
    range_rows bigint NOT NULL,
    range_fingerprint bigint NOT NULL,
    CHECK (covered_rows = range_rows AND covered_fingerprint = range_fingerprint)
);

CREATE TABLE prism_quarantine (
    prism_quarantine_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_staging_object_id bigint NOT NULL REFERENCES prism_staging_objects,
    reason text NOT NULL,
    line_count bigint NOT NULL,
    object_key text,
    create_time timestamptz NOT NULL,
    UNIQUE (prism_staging_object_id, reason)
);
CREATE INDEX prism_quarantine_time ON prism_quarantine (create_time);

CREATE TABLE prism_gc_log (
    prism_gc_log_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    bucket_name text NOT NULL,
    object_key text NOT NULL,
    content_length bigint,
    delete_time timestamptz NOT NULL,
    reason text NOT NULL
);
"""

_DROP_ORDER = (
    "prism_gc_log", "prism_quarantine", "prism_switch_certificates", "prism_merge_ranges", "prism_merge_job_log",
    "prism_merge_jobs", "prism_small_objects", "prism_partitions", "prism_unknown_staging_objects",
    "prism_staging_objects", "prism_stream_batches", "prism_stream_scans", "prism_streams", "prism_table_columns",
    "prism_table_definitions", "prism_tables",
)  # fmt: skip


def upgrade() -> None:
    op.execute(_TABLES)


def downgrade() -> None:
    for table in _DROP_ORDER:
        op.execute(f"DROP TABLE {table}")
