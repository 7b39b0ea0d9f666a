-- The schema of prism_assets: everything the product remembers, from a table file to the catalogs of readers.
--
-- PostgreSQL holds the truth about the objects in S3. A row here decides whether an object is read, merged or deleted;
-- S3 holds bytes, and the catalogs (Glue, Iceberg, DuckLake) show a copy of these rows.
--
--   1  tables, their definitions and columns, streams, topics of Kafka
--   2  staging objects, batches, quarantined lines
--   3  partitions, small objects, merge jobs, ranges
--   4  publications: the contents of each catalog
--   5  erasures
--   6  rewrites, their staged files, the ledger of rebuilds
--   7  folds, and the records of join tables
--   8  Iceberg
--   9  leases, garbage, drops, the installation
--  10  DuckLake: views over the rows above
--
-- All times are instants by the clock of the database, if a comment does not say otherwise. All lengths are bytes.
-- `prism_assets/metadata/` has a Python module for almost every table. Each statement there names the rows it locks.
-- Transactions lock the row of a partition before they change anything of the day, and several rows in id order.


-- =====================================================================================================================
-- 1  Tables
-- =====================================================================================================================

-- A table of the lake. `prism table apply` writes it from a table file.
CREATE TABLE prism_tables (
    prism_table_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    create_time timestamptz NOT NULL,
    merge_interval integer NOT NULL, -- seconds from a commit to the merge of its partition
    -- The folder of a renamed table keeps the first name, so that no object moves. Null: the names above.
    physical_schema_name text,
    physical_table_name text,
    definition_version integer NOT NULL DEFAULT 0, -- the definition in force
    -- Retention. Batches after `retained_batch_id` take no rows of days before `retained_from`.
    retained_from date,
    retained_batch_id bigint,
    -- A join table is two rows: the records, and a log of changes, which points to the records here.
    changes_of bigint UNIQUE REFERENCES prism_tables,
    watermark timestamptz, -- of records: every change sent before this time has arrived
    intake_paused_until timestamptz, -- no batch claims objects of a table while a widened column is switched over
    UNIQUE (schema_name, table_name)
);

-- A version of a table's definition: columns, streams, settings. Apply adds versions; nothing changes one.
-- A staging object is converted under the version of its first claim, however often the conversion is tried, so each
-- attempt writes the same bytes under the same key.
CREATE TABLE prism_table_definitions (
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    version integer NOT NULL,
    definition jsonb NOT NULL,
    create_time timestamptz NOT NULL,
    PRIMARY KEY (prism_table_id, version)
);

-- A column that a table has or had, or a part of a nested one: a field, an element, a key or a value. `column_id` is the
-- field id in Parquet and Iceberg. Apply never gives one twice, therefore a dropped column keeps its row.
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
    parent_id integer, -- of a part: the column or the part around it
    PRIMARY KEY (prism_table_id, column_id)
);
CREATE UNIQUE INDEX prism_table_columns_name ON prism_table_columns (prism_table_id, coalesce(parent_id, 0), name)
WHERE drop_time IS NULL;

-- A former name of a renamed table. Catalogs show the table under both names until `end_time`. Then each publisher
-- removes the former name and adds itself to `removed_from`; `remove_time` is set after the last of them.
CREATE TABLE prism_former_names (
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    end_time timestamptz NOT NULL,
    remove_time timestamptz,
    removed_from text[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (prism_table_id, schema_name, table_name)
);
-- A catalog has room for one table under a name.
CREATE UNIQUE INDEX prism_former_names_shown ON prism_former_names (schema_name, table_name) WHERE remove_time IS NULL;

-- A prefix in a bucket whose objects feed a table. Several tables may read one prefix, each with a row of its own. Apply
-- writes the row, and keeps it as `removed` when no file names it.
CREATE TABLE prism_streams (
    prism_stream_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    stream_name text NOT NULL,
    bucket_name text NOT NULL,
    key_prefix text NOT NULL,
    include_patterns text[] NOT NULL DEFAULT '{}',
    exclude_patterns text[] NOT NULL DEFAULT '{}',
    since date, -- discovery leaves out objects with an earlier day in their keys; `prism history` registers them
    -- The first and the last day whose old objects `prism history` has registered, until it is cancelled.
    history_from date,
    history_until date,
    history_registers_until date, -- the last day of the part that is being registered; null: none
    -- Of a prefix with several tables, `route_key` gives matching objects to this one. A stream without it reads the
    -- objects that none of `taken_keys`, the keys of the others, matches.
    route_key text,
    taken_keys text[] NOT NULL DEFAULT '{}',
    records text NOT NULL DEFAULT '', -- the path to records; each line has one table among streams of one path
    enabled boolean NOT NULL DEFAULT true,
    discard boolean NOT NULL DEFAULT false,
    removed boolean NOT NULL DEFAULT false,
    moved boolean NOT NULL DEFAULT false, -- fed another table first: objects begun then stay there
    found_any boolean NOT NULL DEFAULT false, -- a listing or an event has named an object
    -- The fate of objects no batch has claimed yet. Conversions already begun are always finished.
    intake text GENERATED ALWAYS AS (
        CASE WHEN NOT enabled AND NOT removed THEN 'wait' WHEN discard THEN 'discard' ELSE 'convert' END) STORED,
    UNIQUE (bucket_name, key_prefix, prism_table_id),
    CHECK (history_from <= history_until AND (history_from IS NULL) = (history_until IS NULL))
);
CREATE INDEX prism_streams_table ON prism_streams (prism_table_id);

-- The listing of a stream: how far discovery has come, and its last error.
CREATE TABLE prism_stream_scans (
    prism_stream_id bigint PRIMARY KEY REFERENCES prism_streams,
    position_key text, -- the next incremental listing starts after this key
    resume_key text, -- set while a listing is unfinished: it goes on after this key
    resume_time timestamptz, -- the youngest object that the unfinished listing has seen
    scan_time timestamptz NOT NULL,
    full_scan_time timestamptz NOT NULL, -- the start of the last listing of the whole stream
    object_count bigint NOT NULL,
    first_time timestamptz NOT NULL,
    left_out jsonb NOT NULL DEFAULT '{}', -- objects that the patterns of the stream leave out, by reason
    error_time timestamptz, -- the first failure since a listing succeeded
    last_error text
);

-- A topic of Kafka that feeds a stream. Kafka gives a recreated topic a new id: its offsets begin again, so it is
-- another row. A person ends the row of the earlier one (`prism kafka restart`).
CREATE TABLE prism_topics (
    prism_topic_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_stream_id bigint NOT NULL REFERENCES prism_streams,
    cluster_id text NOT NULL, -- as the brokers name it
    topic_id text NOT NULL, -- as the brokers name it
    topic_name text NOT NULL,
    register_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended boolean NOT NULL DEFAULT false, -- nothing more is read
    last_error text, -- why the whole topic stands: it is gone, or another one
    error_time timestamptz,
    next_start text, -- of an ended topic: where the next topic of the stream begins, by a person
    UNIQUE (prism_stream_id, cluster_id, topic_id)
);
CREATE UNIQUE INDEX prism_topics_one ON prism_topics (prism_stream_id) WHERE NOT ended;

-- The position of a stream in a partition, and the worker that reads it. A flush locks the row, so a worker that lost
-- its lease commits nothing.
CREATE TABLE prism_topic_partitions (
    prism_topic_id bigint NOT NULL REFERENCES prism_topics,
    partition integer NOT NULL,
    next_offset bigint NOT NULL,
    leader_epoch integer, -- of the last message: the broker finds a truncated log by it
    state text NOT NULL DEFAULT 'reading' CHECK (state IN ('reading', 'stopped')),
    last_error text, -- why it is stopped, until a person decides
    error_time timestamptz,
    worker text,
    lease_token uuid,
    heartbeat_time timestamptz,
    end_offset bigint, -- the last stable offset when the worker last looked: lag is the distance to it
    -- Lag counts from, and join tables wait for, times and not offsets: once the position reaches `goal_offset`, the end at `goal_time`,
    -- all messages that could be read by then are registered, and this time becomes `complete_time`.
    goal_offset bigint,
    goal_time timestamptz,
    complete_time timestamptz,
    last_message_time timestamptz, -- of the last message read, by its producer or broker
    PRIMARY KEY (prism_topic_id, partition)
);

-- The offsets that were read, without a gap: each range begins where another one ends, down to the start. A fork or a
-- gap violates a key. A range without records has no object: it holds markers, aborted or compacted messages.
CREATE TABLE prism_offset_ranges (
    prism_topic_id bigint NOT NULL,
    partition integer NOT NULL,
    from_offset bigint,
    to_offset bigint NOT NULL,
    kind text NOT NULL CHECK (kind IN ('start', 'read', 'skipped')),
    prism_staging_object_id bigint, -- null without messages, and once the object is deleted
    records bigint NOT NULL DEFAULT 0,
    leader_epoch integer,
    reason text, -- of a skipped range: who decided, and why
    create_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (prism_topic_id, partition, to_offset),
    UNIQUE NULLS NOT DISTINCT (prism_topic_id, partition, from_offset),
    FOREIGN KEY (prism_topic_id, partition) REFERENCES prism_topic_partitions,
    FOREIGN KEY (prism_topic_id, partition, from_offset)
        REFERENCES prism_offset_ranges (prism_topic_id, partition, to_offset),
    CHECK ((kind = 'start') = (from_offset IS NULL)),
    CHECK (from_offset IS NULL OR to_offset > from_offset),
    CHECK (records >= 0 AND (from_offset IS NULL AND records = 0 OR records <= to_offset - from_offset))
);
CREATE INDEX prism_offset_ranges_object ON prism_offset_ranges (prism_staging_object_id)
    WHERE prism_staging_object_id IS NOT NULL;
-- Ranges whose object is gone, or that never had one: upkeep joins neighbours.
CREATE INDEX prism_offset_ranges_free ON prism_offset_ranges (prism_topic_id, partition, to_offset)
    WHERE kind = 'read' AND prism_staging_object_id IS NULL;


-- =====================================================================================================================
-- 2  Staging objects
-- =====================================================================================================================

-- A Spark job of Stream, which converts many staging objects of many tables. Ids order the batches: a partition's
-- closing mark and the rules of an erasure say "every batch up to this id".
CREATE TABLE prism_stream_batches (
    prism_stream_batch_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- An id can come again after a failover to a replica that lagged; a token cannot.
    token uuid NOT NULL DEFAULT gen_random_uuid(),
    start_time timestamptz NOT NULL,
    heartbeat_time timestamptz NOT NULL, -- after a silence longer than the lease the batch is declared dead
    finish_time timestamptz,
    state text NOT NULL CHECK (state IN ('running', 'done', 'dead')),
    probed boolean NOT NULL DEFAULT false, -- the engine worked after the claim: a death is charged
    worker text NOT NULL
);
CREATE INDEX prism_stream_batches_running ON prism_stream_batches (heartbeat_time) WHERE state = 'running';

-- An input object of one table: logs as they arrived in S3. Discovery inserts the row, batches claim and finish it. Where
-- several tables read a prefix, each has a row of its own for an object, with its own state, attempts and ledger.
CREATE TABLE prism_staging_objects (
    prism_staging_object_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_stream_id bigint NOT NULL REFERENCES prism_streams,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    bucket_name text NOT NULL,
    object_key text NOT NULL,
    etag text,
    content_length bigint NOT NULL,
    send_time timestamptz,
    sent_after timestamptz, -- of a spool object: its messages could be read after this time
    first_receive_time timestamptz NOT NULL,
    -- `history`: waits for a batch of `prism history`, behind all pending objects. Begun, it is like any other.
    state text NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'claimed', 'done', 'failed', 'history')),
    history_date date, -- the day in the key of an object that `prism history` registered

    -- Decided by the first claim, and kept by all later attempts, so that they write the same rows.
    first_batch_id bigint, -- also decides between live and delayed, against the closing mark of the day
    definition_version integer, -- raised by a rebuild
    -- The definition for the next claim as a new object, where a table of the prefix has claimed the object and routes
    -- have changed since: all its tables read it by the routes of that time. Null: the definition in force.
    claim_version integer,
    read_version integer, -- the definition of the first conversion where a rebuild has raised the one above
    respected_erasure_id bigint, -- the last erasure whose rows the conversion leaves out
    retained_from date, -- rows of earlier days are filtered
    watermark timestamptz, -- of a log of changes: changes that are later than the settled records are refused

    prism_stream_batch_id bigint REFERENCES prism_stream_batches, -- the current or last batch
    -- A new start writes under new keys, so leftovers of an earlier start may be removed at any time.
    generation integer NOT NULL DEFAULT 0,
    attempts integer NOT NULL DEFAULT 0, -- failures that are the object's own
    outages integer NOT NULL DEFAULT 0, -- failures of the surroundings: they lengthen the pause and nothing else
    rewrites integer NOT NULL DEFAULT 0, -- overwritten so often in a row before a batch could read it
    batch_limit integer CHECK (batch_limit > 0), -- after a batch died: half as many objects; null: no limit
    retry_time timestamptz,
    last_error text,

    -- The ledger.
    finish_time timestamptz,
    lines_in bigint,
    rows_out bigint,
    rows_quarantined bigint,
    rows_filtered bigint NOT NULL DEFAULT 0,
    rows_erased bigint NOT NULL DEFAULT 0,
    rows_elsewhere bigint NOT NULL DEFAULT 0, -- lines that the route of the stream gives to other tables
    value_errors jsonb, -- values that did not fit their column and became null, by column
    rebuilds integer NOT NULL DEFAULT 0, -- how often rows of it were rebuilt

    -- Another version appeared under the key after the conversion. Or the object came again after its metadata left for
    -- the archive: then first_batch_id is null, and finish_time is 1970. It is reported, and not read.
    overwritten_time timestamptz,
    overwritten_etag text,
    overwritten_send_time timestamptz,
    dismissed boolean NOT NULL DEFAULT false, -- a person accepts the object, or its later version, as unread

    UNIQUE (bucket_name, object_key, prism_table_id), -- a table has an object once, whoever finds it
    -- Every line of a converted object is accounted for. The six counts are counted, none is a difference.
    CONSTRAINT prism_staging_objects_balance CHECK (state <> 'done'
        OR lines_in = rows_out + rows_quarantined + rows_filtered + rows_erased + rows_elsewhere),
    CHECK (state <> 'claimed' OR (prism_stream_batch_id IS NOT NULL AND first_batch_id IS NOT NULL)),
    CHECK (state <> 'history' OR (history_date IS NOT NULL AND first_batch_id IS NULL AND generation = 0))
);
-- Claims: objects in order of arrival, begun ones before new ones, and suspects of a dead batch apart.
CREATE INDEX prism_staging_objects_pending ON prism_staging_objects (prism_stream_id, prism_staging_object_id)
    WHERE state = 'pending';
CREATE INDEX prism_staging_objects_begun ON prism_staging_objects (prism_stream_id, prism_staging_object_id)
    WHERE state = 'pending' AND (first_batch_id IS NOT NULL OR generation > 0 OR claim_version IS NOT NULL);
CREATE INDEX prism_staging_objects_suspects ON prism_staging_objects (prism_staging_object_id)
    WHERE state = 'pending' AND batch_limit IS NOT NULL;
-- Objects that a live worker gives to Spark: more than 8 MiB, among a backlog of small ones.
CREATE INDEX prism_staging_objects_large ON prism_staging_objects (prism_table_id)
    WHERE state = 'pending' AND content_length > 8388608;
CREATE INDEX prism_staging_objects_claimed ON prism_staging_objects (prism_stream_batch_id) WHERE state = 'claimed';
-- `prism history` converts day by day, and open days wait for objects of their history.
CREATE INDEX prism_staging_objects_history
    ON prism_staging_objects (prism_table_id, history_date, prism_staging_object_id)
    WHERE history_date IS NOT NULL AND state IN ('history', 'pending', 'claimed');
-- A marked partition closes when no object up to its closing batch is here any more.
CREATE INDEX prism_staging_objects_unfinished ON prism_staging_objects (prism_table_id, first_batch_id)
    WHERE state IN ('pending', 'claimed') AND first_batch_id IS NOT NULL;
-- The watermark of a join table waits for the oldest unfinished object.
CREATE INDEX prism_staging_objects_oldest
    ON prism_staging_objects (prism_table_id, coalesce(sent_after, send_time, first_receive_time))
    WHERE state IN ('pending', 'claimed');
-- Status, checks and sensors.
CREATE INDEX prism_staging_objects_failed ON prism_staging_objects (prism_table_id) WHERE state = 'failed';
CREATE INDEX prism_staging_objects_overwritten ON prism_staging_objects (prism_table_id)
    WHERE overwritten_time IS NOT NULL AND NOT dismissed;
CREATE INDEX prism_staging_objects_outages ON prism_staging_objects (prism_table_id)
    WHERE state = 'pending' AND outages >= 10;
CREATE INDEX prism_staging_objects_done ON prism_staging_objects (prism_table_id, finish_time)
    INCLUDE (lines_in, rows_quarantined, rows_elsewhere) WHERE state = 'done';
-- Whether a table has read a stream. Equal entries are stored once, so the index is small.
CREATE INDEX prism_staging_objects_read ON prism_staging_objects (prism_stream_id, prism_table_id)
    WHERE state = 'done' AND definition_version IS NOT NULL;
CREATE INDEX prism_staging_objects_quarantined ON prism_staging_objects (prism_table_id, prism_staging_object_id)
    WHERE rows_quarantined > 0;
CREATE INDEX prism_staging_objects_unfit ON prism_staging_objects (prism_table_id, finish_time)
    WHERE value_errors IS NOT NULL;

-- A staging object with rows of kept days, whose own rows left for the archive. Its key stays known by a digest, so that
-- a listing or a late event never registers it again: its rows would be read twice.
CREATE TABLE prism_archived_keys (
    key_digest uuid NOT NULL, -- prism_key_digest of bucket and key
    prism_table_id bigint NOT NULL,
    prism_stream_id bigint NOT NULL,
    last_date date NOT NULL, -- the last kept day with rows of the object; infinity after a move to another table
    PRIMARY KEY (key_digest, prism_table_id)
);
CREATE INDEX prism_archived_keys_of_day ON prism_archived_keys (prism_table_id, last_date);
-- 128 bits of SHA-256. No bucket has a slash in its name, so no two objects share the text.
CREATE FUNCTION prism_key_digest(bucket text, key text) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
SELECT CAST(encode(substring(sha256(convert_to(bucket || '/' || key, 'UTF8')) FOR 16), 'hex') AS uuid)
$$;

-- An object discovery could not register: no stream has the prefix, or the name or the event cannot be read.
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

-- Keys that an abandoned start of a staging object may have uploaded, for the days from `first_date` to `last_date`.
-- Stream removes them, and once more after a while: a Spark task can outlive its driver and upload after the first
-- removal.
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

-- Lines of a staging object that became no row, for one reason. The lines lie in S3 under `object_key`.
CREATE TABLE prism_quarantine (
    prism_quarantine_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_staging_object_id bigint NOT NULL REFERENCES prism_staging_objects,
    reason text NOT NULL,
    line_count bigint NOT NULL,
    object_key text,
    create_time timestamptz NOT NULL,
    erasure_id bigint NOT NULL DEFAULT 0, -- the lines hold nothing that erasures up to this one match
    -- The days of these lines, where a rebuild of another day has set them aside. Rebuilds of these days find them
    -- here. Null: not recorded.
    dates date[],
    UNIQUE (prism_staging_object_id, reason)
);
CREATE INDEX prism_quarantine_time ON prism_quarantine (create_time);
CREATE INDEX prism_quarantine_reason ON prism_quarantine (reason, prism_staging_object_id);

-- A field in lines of a table that no column reads, and the place where a batch saw it last. No value is kept. A table
-- has 500 keys at most.
CREATE TABLE prism_undefined_fields (
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    within text COLLATE "C" NOT NULL, -- the path of the struct around it, such as items[]; '' for a key of the line
    field_key text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    field_count bigint NOT NULL CHECK (field_count > 0),
    first_time timestamptz NOT NULL,
    last_time timestamptz NOT NULL,
    bucket_name text NOT NULL,
    object_key text NOT NULL,
    line bigint NOT NULL,
    PRIMARY KEY (prism_table_id, within, field_key, kind)
);


-- =====================================================================================================================
-- 3  Partitions
-- =====================================================================================================================

-- A day of a table. The lock of this row orders commits, merges, close, switch, publications, erasures and rebuilds of
-- the day.
CREATE TABLE prism_partitions (
    prism_partition_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    partition_date date NOT NULL,
    last_object_id bigint NOT NULL DEFAULT 0, -- the highest id of its small objects

    -- The life of a day: open, marked (closing_batch_id), closed (last_live_object_id), switched, expired.
    closing_batch_id bigint, -- objects that a later batch claims first are delayed, not live
    last_live_object_id bigint, -- the highest id of its live objects; no live object comes after the close
    switched boolean NOT NULL DEFAULT false, -- readers get merged objects; the certificate below allowed it
    expire_time timestamptz,
    close_early boolean NOT NULL DEFAULT false, -- an erasure asked for the close before the day ends

    ongoing_manifest_version bigint, -- of the published design, kept and unused
    desired_manifest_version bigint NOT NULL DEFAULT 0, -- the upper bound of the last range; of records, the last fold
    revision integer NOT NULL DEFAULT 0, -- raised when an object that publications name gets another key or length
    repairs integer NOT NULL DEFAULT 0, -- repairs so far; each ends Iceberg snapshots that may name the damaged object

    UNIQUE (prism_table_id, partition_date),
    CHECK (last_live_object_id IS NULL OR closing_batch_id IS NOT NULL),
    CHECK (NOT switched OR last_live_object_id IS NOT NULL),
    CONSTRAINT prism_partitions_expired CHECK (expire_time IS NULL OR switched)
);
CREATE INDEX prism_partitions_unswitched ON prism_partitions (prism_table_id) WHERE NOT switched;
CREATE INDEX prism_partitions_unmerged ON prism_partitions (prism_table_id, partition_date)
    WHERE last_object_id > desired_manifest_version;
CREATE INDEX prism_partitions_kept ON prism_partitions (prism_table_id, partition_date) WHERE expire_time IS NULL;

-- A Parquet object with the rows of one staging object for one day. Stream commits it.
-- Inside a partition ids become visible in ascending order, because Stream takes them while it holds the partition's
-- row. A merge that reads `id > upper bound` therefore misses none.
CREATE TABLE prism_small_objects (
    prism_small_object_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_staging_object_id bigint NOT NULL REFERENCES prism_staging_objects,
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    generation integer NOT NULL DEFAULT 0, -- how often its staging object was restarted; part of the key
    delayed boolean NOT NULL, -- it arrived after the closing mark, and lies outside of the live prefix
    content_length bigint NOT NULL,
    upload_start_time timestamptz NOT NULL,
    commit_time timestamptz NOT NULL DEFAULT now(),
    row_count bigint NOT NULL,
    min_time timestamptz NOT NULL,
    max_time timestamptz NOT NULL,
    fingerprint bigint NOT NULL, -- the sum of the hashes of its rows
    file_format smallint NOT NULL DEFAULT 1, -- the unit of timestamps: 1 milliseconds, 2 microseconds
    metrics jsonb, -- nulls and bounds of columns, by column id
    definition_version integer NOT NULL, -- gives the names of its columns
    rewrite_id bigint NOT NULL DEFAULT 0, -- the rewrite that wrote it, and whose number its key has; 0: Stream
    -- An erasure takes rows out; certificates and merges still count them.
    rows_erased bigint NOT NULL DEFAULT 0,
    erased_fingerprint bigint NOT NULL DEFAULT 0,
    erasure_id bigint NOT NULL DEFAULT 0, -- no row in it matches erasures up to this one
    UNIQUE (prism_staging_object_id, prism_partition_id), -- a retry cannot commit rows twice
    -- Stream writes no empty object. An object may become empty later, and keeps its place in the chain of ranges.
    CONSTRAINT prism_small_objects_rows
        CHECK (row_count > 0 OR (row_count = 0 AND (rewrite_id > 0 OR rows_erased > 0)))
);
CREATE INDEX prism_small_objects_partition ON prism_small_objects (prism_partition_id, prism_small_object_id);
CREATE INDEX prism_small_objects_delayed ON prism_small_objects (prism_partition_id, prism_small_object_id)
    WHERE delayed;

-- A merge of a partition: waiting (ongoing_mark = 0) or running (ongoing_mark = its own id). Stream and merges insert
-- the row, and the commit of the merge deletes it.
CREATE TABLE prism_merge_jobs (
    prism_merge_job_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    schedule_time timestamptz NOT NULL,
    ongoing_mark bigint NOT NULL DEFAULT 0,
    heartbeat_time timestamptz,
    lease_token uuid, -- needed to commit: a worker without its job changes nothing
    attempts integer NOT NULL DEFAULT 0,
    last_error text,
    parked boolean NOT NULL DEFAULT false, -- failed too often: tried again at retry_time, or when a person asks
    retry_time timestamptz CHECK (retry_time IS NULL OR parked),
    died boolean NOT NULL DEFAULT false, -- a worker died with the job: it is claimed alone
    probed boolean NOT NULL DEFAULT false, -- the engine worked after the claim: a death is charged
    worker text,
    UNIQUE (prism_partition_id, ongoing_mark), -- at most one job of a partition waits; a second one joins it
    CHECK (ongoing_mark IN (0, prism_merge_job_id)),
    CHECK ((ongoing_mark = 0) = (lease_token IS NULL))
);
CREATE INDEX prism_merge_jobs_due ON prism_merge_jobs (schedule_time) WHERE ongoing_mark = 0;
CREATE INDEX prism_merge_jobs_running ON prism_merge_jobs (heartbeat_time) WHERE ongoing_mark > 0;

-- An ended merge, with its error if it failed.
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

-- A merged object: the rows of the small objects with lower_bound < id <= upper_bound. Merges write it.
-- The ranges of a partition are one gapless chain from the sentinel (null, 0), by the foreign key: every lower bound is
-- the upper bound of another range.
CREATE TABLE prism_merge_ranges (
    prism_merge_range_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    lower_bound bigint,
    upper_bound bigint NOT NULL,
    content_length bigint NOT NULL,
    row_count bigint NOT NULL,
    min_time timestamptz,
    max_time timestamptz,
    fingerprint bigint NOT NULL,
    file_format smallint NOT NULL DEFAULT 1,
    metrics jsonb,
    definition_version integer,
    rewrite_id bigint NOT NULL DEFAULT 0, -- the rewrite that wrote it, and whose number its key has
    rows_erased bigint NOT NULL DEFAULT 0,
    erased_fingerprint bigint NOT NULL DEFAULT 0,
    erasure_id bigint NOT NULL DEFAULT 0,
    create_time timestamptz NOT NULL,
    update_time timestamptz NOT NULL,
    -- Small objects below it whose rows left for the archive, with their erased rows. The lower bound of a range never
    -- changes, and its upper bound only grows, so the sums stay with it.
    archived_objects bigint NOT NULL DEFAULT 0,
    archived_rows bigint NOT NULL DEFAULT 0,
    archived_bytes bigint NOT NULL DEFAULT 0,
    archived_fingerprint numeric NOT NULL DEFAULT 0, -- a sum that does not wrap
    UNIQUE NULLS NOT DISTINCT (prism_partition_id, lower_bound),
    UNIQUE (prism_partition_id, upper_bound),
    CHECK (upper_bound > lower_bound),
    CHECK (lower_bound IS NOT NULL OR upper_bound = 0),
    FOREIGN KEY (prism_partition_id, lower_bound) REFERENCES prism_merge_ranges (prism_partition_id, upper_bound),
    CONSTRAINT prism_merge_ranges_definition CHECK (lower_bound IS NULL OR definition_version IS NOT NULL)
);

-- The proof behind a switch: the ranges hold exactly the rows of the small objects under them. A catalog run writes it
-- in the transaction of the switch; a rebuild renews it.
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

-- The last fence of an expired day: its objects are deleted, so nothing may be added. No code comes here by itself.
CREATE FUNCTION prism_keep_expired() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the day % of table % is expired, and nothing is added to it', OLD.partition_date, OLD.prism_table_id
        USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER prism_partitions_expired
    BEFORE UPDATE OF last_object_id, desired_manifest_version, revision ON prism_partitions
    FOR EACH ROW WHEN (OLD.expire_time IS NOT NULL
        AND (NEW.last_object_id, NEW.desired_manifest_version, NEW.revision)
        IS DISTINCT FROM (OLD.last_object_id, OLD.desired_manifest_version, OLD.revision))
    EXECUTE FUNCTION prism_keep_expired();


-- =====================================================================================================================
-- 4  Publications
-- =====================================================================================================================

-- A table in the catalog of a publisher (glue, symlink), from before the first call until a run saw it removed.
CREATE TABLE prism_table_publications (
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    publisher text NOT NULL,
    defined_version integer NOT NULL DEFAULT 0, -- the definition that the catalog shows
    compared_time timestamptz NOT NULL DEFAULT clock_timestamp(), -- start of the last run that compared the whole table
    renamed_time timestamptz NOT NULL DEFAULT clock_timestamp(), -- it shows the last step of renamed columns since
    PRIMARY KEY (prism_table_id, publisher)
);

-- A day in the catalog of a publisher (glue, symlink, iceberg). Catalog runs write it after
-- the catalog confirmed the change, so it is behind after a death and never ahead.
CREATE TABLE prism_publications (
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    publisher text NOT NULL,
    version bigint NOT NULL, -- -1 nothing, 0 small objects, else merged objects up to this upper bound
    published_object_id bigint NOT NULL, -- the highest small object in the manifest
    revision integer NOT NULL, -- that of the partition
    repairs integer NOT NULL DEFAULT 0, -- those of the partition
    dirty boolean NOT NULL, -- the day changed since
    publish_time timestamptz,
    withdraw_time timestamptz, -- the catalog forgot an expired day
    PRIMARY KEY (prism_partition_id, publisher)
);
CREATE INDEX prism_publications_dirty ON prism_publications (publisher, prism_partition_id) WHERE dirty;

-- A change of a day marks its publications as dirty in the same transaction, under the lock of the partition's row.
-- A trigger does it because many statements change a day and a forgotten mark would hide rows for ever.
-- Glue and symlinks show manifests from the close on, and the live prefix before, which needs no call. Iceberg lists
-- every object in any state of a day.
CREATE FUNCTION prism_mark_publications() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.last_live_object_id IS NOT NULL THEN
        INSERT INTO prism_publications AS q
            (prism_partition_id, publisher, version, published_object_id, revision, dirty)
        SELECT NEW.prism_partition_id, t.publisher, -1, 0, 0, true
        FROM prism_table_publications t WHERE t.prism_table_id = NEW.prism_table_id
        ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET dirty = true WHERE NOT q.dirty;
    END IF;
    IF (NEW.last_object_id, NEW.desired_manifest_version, NEW.revision, NEW.expire_time)
        IS DISTINCT FROM (OLD.last_object_id, OLD.desired_manifest_version, OLD.revision, OLD.expire_time) THEN
        INSERT INTO prism_publications AS q
            (prism_partition_id, publisher, version, published_object_id, revision, dirty)
        SELECT NEW.prism_partition_id, 'iceberg', -1, 0, 0, true
        FROM prism_iceberg_tables t WHERE t.prism_table_id = NEW.prism_table_id
        ON CONFLICT (prism_partition_id, publisher) DO UPDATE SET dirty = true WHERE NOT q.dirty;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER prism_partitions_mark
    AFTER UPDATE OF last_object_id, last_live_object_id, switched, desired_manifest_version, revision, expire_time
    ON prism_partitions FOR EACH ROW WHEN (
        (NEW.last_object_id, NEW.last_live_object_id, NEW.switched, NEW.desired_manifest_version, NEW.revision,
            NEW.expire_time)
        IS DISTINCT FROM
        (OLD.last_object_id, OLD.last_live_object_id, OLD.switched, OLD.desired_manifest_version, OLD.revision,
            OLD.expire_time))
    EXECUTE FUNCTION prism_mark_publications();

-- Every publication of Glue and symlinks, with its time. Garbage collection keeps the objects readers were sent to when
-- the reader lease began. Iceberg has snapshots for this.
CREATE TABLE prism_publication_history (
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    publisher text NOT NULL,
    version bigint NOT NULL,
    published_object_id bigint NOT NULL,
    revision integer NOT NULL,
    record_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (prism_partition_id, publisher, version, published_object_id, revision)
);
-- A publication and its history are one transaction: a missing row would let garbage collection delete objects under a
-- reader.
CREATE FUNCTION prism_note_publication() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO prism_publication_history (prism_partition_id, publisher, version, published_object_id, revision)
        VALUES (NEW.prism_partition_id, NEW.publisher, NEW.version, NEW.published_object_id, NEW.revision)
        ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER prism_publications_insert AFTER INSERT ON prism_publications
    FOR EACH ROW WHEN (NEW.version >= 0 AND NEW.publisher <> 'iceberg') EXECUTE FUNCTION prism_note_publication();
CREATE TRIGGER prism_publications_update AFTER UPDATE OF version, published_object_id, revision ON prism_publications
    FOR EACH ROW WHEN (NEW.version >= 0 AND NEW.publisher <> 'iceberg'
        AND (NEW.version, NEW.published_object_id, NEW.revision)
        IS DISTINCT FROM (OLD.version, OLD.published_object_id, OLD.revision))
    EXECUTE FUNCTION prism_note_publication();

-- The intent of a run to call a catalog. The run inserts it before its first call and deletes it when every call was
-- answered. After a death the note stays, and later runs compare the table: a call can land after its caller died, but
-- not after `expire_time`.
CREATE TABLE prism_publication_intents (
    prism_publication_intent_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    publisher text NOT NULL,
    lease_token uuid NOT NULL,
    worker text NOT NULL,
    start_time timestamptz NOT NULL,
    expire_time timestamptz NOT NULL
);
CREATE INDEX prism_publication_intents_table ON prism_publication_intents (prism_table_id);

-- How far the assets of a day were reported to Dagster. Runs report their own work; a sensor reports the work of
-- commands.
CREATE TABLE prism_materializations (
    prism_partition_id bigint PRIMARY KEY REFERENCES prism_partitions,
    live bigint NOT NULL,
    merged bigint NOT NULL,
    records bigint NOT NULL DEFAULT 0,
    catalog bigint NOT NULL,
    iceberg bigint NOT NULL DEFAULT 0
);

-- A partition with its state in Glue, for `domain/days/partitions.py`. OFFSET 0 makes the planner look up one row of
-- prism_publications for each partition; otherwise it overestimates the partitions and reads the whole table.
CREATE VIEW prism_partition_states AS
SELECT p.prism_partition_id AS partition_id, p.prism_table_id AS table_id, p.partition_date AS date,
    coalesce(q.version, -1) AS current_version, p.desired_manifest_version AS desired_version, p.last_live_object_id,
    p.switched, p.closing_batch_id, q.published_object_id, p.last_object_id,
    p.revision, coalesce(q.revision, 0) AS published_revision, p.expire_time IS NOT NULL AS expired, p.close_early
FROM prism_partitions p LEFT JOIN LATERAL (
    SELECT * FROM prism_publications WHERE prism_partition_id = p.prism_partition_id AND publisher = 'glue' OFFSET 0
) q ON true;


-- =====================================================================================================================
-- 5  Erasures
-- =====================================================================================================================

-- A rule by which rows leave a table for good. `prism erase` inserts the rule, and the stage erase carries it out.
-- Batches after `after_batch_id` leave the rows out; the stage rewrites the objects of earlier ones.
CREATE TABLE prism_erasures (
    prism_erasure_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL, -- no foreign key: the proof outlives a dropped table
    predicate text NOT NULL,
    columns jsonb NOT NULL, -- the definitions of the columns that the predicate names, as they were
    "values" jsonb NOT NULL,
    secrets text[] NOT NULL,
    digest text NOT NULL, -- by which a repeated command finds its erasure
    after_batch_id bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('rewriting', 'publishing', 'waiting', 'proved')),
    create_time timestamptz NOT NULL,
    rewritten_time timestamptz,
    published_time timestamptz,
    proved_time timestamptz,
    look_time timestamptz, -- when the stage last tried and could not go on, for last_error
    objects_rewritten bigint NOT NULL DEFAULT 0,
    rows_erased bigint NOT NULL DEFAULT 0,
    lines_erased bigint NOT NULL DEFAULT 0,
    lines_withheld bigint NOT NULL DEFAULT 0,
    -- Rows in objects of open days, as last counted. They are erased after the close of these days.
    open_rows bigint NOT NULL DEFAULT 0,
    open_objects bigint NOT NULL DEFAULT 0,
    open_time timestamptz,
    open_partitions bigint[] NOT NULL DEFAULT '{}', -- open days with such objects, as last seen: the close is awaited
    proof jsonb,
    last_error text,
    CHECK ((state = 'proved') = (proof IS NOT NULL)),
    UNIQUE (prism_table_id, digest)
);
CREATE INDEX prism_erasures_open ON prism_erasures (prism_table_id) WHERE state <> 'proved';

-- A staging object with rows of an erasure. `certain` if its own small object had some; otherwise several staging
-- objects went into a merged object with such rows.
CREATE TABLE prism_erasure_sources (
    prism_erasure_id bigint NOT NULL REFERENCES prism_erasures,
    prism_staging_object_id bigint NOT NULL REFERENCES prism_staging_objects,
    certain boolean NOT NULL,
    PRIMARY KEY (prism_erasure_id, prism_staging_object_id)
);
CREATE INDEX prism_erasure_sources_staging ON prism_erasure_sources (prism_staging_object_id);

-- An erasure on record in the lake, as an object in S3. It survives a restore of this database, and a person then
-- repeats or withdraws it. No foreign key leads to the table, because a restore can bring back a dropped one.
CREATE TABLE prism_erasure_records (
    record_name text PRIMARY KEY,
    folder text NOT NULL,
    digest text NOT NULL,
    create_time timestamptz NOT NULL,
    state text NOT NULL CHECK (state IN ('announced', 'in_force', 'missing', 'repeated', 'withdrawn')),
    column_names text[] NOT NULL DEFAULT '{}',
    rules jsonb, -- the rules, while the erasure is announced and not in force
    was_missing boolean NOT NULL DEFAULT false,
    state_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((state = 'announced') = (rules IS NOT NULL))
);
CREATE INDEX prism_erasure_records_open ON prism_erasure_records (folder, digest)
    WHERE state IN ('announced', 'missing', 'repeated');


-- =====================================================================================================================
-- 6  Rewrites
-- =====================================================================================================================

-- A job that puts objects in the place of others: of one day of a log, or of the records of a join table. Two kinds
-- belong to a table: a widening, and an erasure of quarantined lines. The id is part of each key that the job writes.
-- Ids of all kinds come from one sequence, so no two jobs write one key. For records the id is also the version of each
-- day that the job changes. A dropped rewrite never commits.
CREATE TABLE prism_rewrites (
    prism_rewrite_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    prism_partition_id bigint REFERENCES prism_partitions, -- null: of several days
    kind text NOT NULL CHECK (kind IN ('fold', 'merge_records', 'erase_records', 'rebuild_records', 'merge', 'rename',
        'widen', 'adopt', 'erase', 'rebuild', 'repair')),
    state text NOT NULL CHECK (state IN ('running', 'done', 'dropped')),
    definition_version integer NOT NULL,
    erasure_id bigint NOT NULL DEFAULT 0, -- the youngest erasure of the table when the rewrite began
    lease_token uuid, -- of the lease or the merge job under which it runs; null: a lease of folds, or a widening
    worker text NOT NULL,
    start_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    finish_time timestamptz,
    rows_written bigint NOT NULL DEFAULT 0,
    bytes_written bigint NOT NULL DEFAULT 0,

    -- Of folds, and of what else replaces records.
    settle_before timestamptz, -- records settle that no change sent after this time can reach
    changes_in bigint NOT NULL DEFAULT 0,
    changes_folded bigint NOT NULL DEFAULT 0,
    changes_unsequenced bigint NOT NULL DEFAULT 0,
    records_changed bigint NOT NULL DEFAULT 0,
    records_settled bigint NOT NULL DEFAULT 0,
    records_joined bigint NOT NULL DEFAULT 0, -- settled records with all groups
    bucket_changes bigint[] NOT NULL DEFAULT '{}' -- new changes, by bucket
);
CREATE UNIQUE INDEX prism_rewrites_of_table ON prism_rewrites (prism_table_id, (kind = 'widen'))
    WHERE state = 'running' AND prism_partition_id IS NULL;
CREATE UNIQUE INDEX prism_rewrites_of_day ON prism_rewrites (prism_partition_id)
    WHERE state = 'running' AND kind = 'rebuild';
CREATE INDEX prism_rewrites_running ON prism_rewrites (lease_token) WHERE state = 'running';
CREATE INDEX prism_rewrites_table ON prism_rewrites (prism_table_id, prism_rewrite_id);
CREATE INDEX prism_rewrites_partition ON prism_rewrites (prism_partition_id) WHERE prism_partition_id IS NOT NULL;
-- Rows and lines that were rewritten long ago: garbage collection forgets these.
CREATE INDEX prism_rewrites_ended ON prism_rewrites (prism_table_id, finish_time)
    WHERE lease_token IS NOT NULL AND state <> 'running';
CREATE INDEX prism_rewrites_merges ON prism_rewrites (prism_table_id, prism_rewrite_id) WHERE kind = 'merge_records';

-- A finished file before the commit of its rewrite. Nobody reads a staged file. Every commit takes its files from here.
-- Rebuilds stage their files one by one, and go on with them after a death. Merges stage copies of ranges with wider
-- types of columns, for one widening of their table. Other rewrites stage all files in the transaction of the commit.
CREATE TABLE prism_staged_files (
    prism_rewrite_id bigint NOT NULL REFERENCES prism_rewrites, -- the rewrite that commits it
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    -- The place: the small object of a staging object, or a range by its lower bound.
    prism_staging_object_id bigint,
    lower_bound bigint,
    upper_bound bigint, -- of a range after the commit
    replaces bigint, -- the rewrite that wrote the current file of the place; null: the place is empty
    rewrite_id bigint NOT NULL, -- the rewrite that wrote it, and whose number its key has; another one for a copy
    content_length bigint NOT NULL,
    upload_start_time timestamptz, -- of small objects
    row_count bigint NOT NULL,
    min_time timestamptz,
    max_time timestamptz,
    fingerprint bigint NOT NULL,
    file_format smallint NOT NULL,
    metrics jsonb,
    definition_version integer NOT NULL,
    rows_erased bigint NOT NULL DEFAULT 0,
    erased_fingerprint bigint NOT NULL DEFAULT 0,
    erasure_id bigint, -- null: that of the replaced file, which has the same rows
    UNIQUE (prism_rewrite_id, prism_staging_object_id),
    UNIQUE (prism_partition_id, lower_bound, prism_rewrite_id),
    CHECK ((prism_staging_object_id IS NULL) = (lower_bound IS NOT NULL AND upper_bound IS NOT NULL)),
    CHECK ((prism_staging_object_id IS NULL) = (upload_start_time IS NULL))
);

-- A staging object already converted by a running rebuild: the ledger for the day. Its rows are in a staged file, if it
-- has any. After a death the rebuild goes on from here.
CREATE TABLE prism_rebuilt_objects (
    prism_rewrite_id bigint NOT NULL REFERENCES prism_rewrites,
    prism_staging_object_id bigint NOT NULL REFERENCES prism_staging_objects,
    small_object_id bigint, -- the object to replace; null: the staging object had no row of the day
    seen_rebuilds integer NOT NULL, -- prism_staging_objects.rebuilds at the conversion; another value means start again
    missing boolean NOT NULL, -- the staging object is gone from S3
    left_out boolean NOT NULL DEFAULT false, -- unchanged, because it is missing, or merged with a missing one
    rows_filtered bigint NOT NULL,
    rows_quarantined bigint NOT NULL,
    rows_erased bigint NOT NULL DEFAULT 0,
    rows_elsewhere bigint NOT NULL DEFAULT 0,
    quarantined jsonb NOT NULL,
    quarantine_key text,
    other_dates date[], -- the days of lines that are rows of other days
    value_errors jsonb,
    PRIMARY KEY (prism_rewrite_id, prism_staging_object_id)
);
CREATE INDEX prism_rebuilt_objects_small ON prism_rebuilt_objects (prism_rewrite_id, small_object_id);


-- =====================================================================================================================
-- 7  Folds and records
-- =====================================================================================================================

-- How far folds have taken a day of a log of changes: all small objects up to one.
CREATE TABLE prism_fold_positions (
    prism_partition_id bigint PRIMARY KEY REFERENCES prism_partitions,
    folded_object_id bigint NOT NULL,
    changes bigint NOT NULL DEFAULT 0,
    fold_id bigint REFERENCES prism_rewrites
);
CREATE INDEX prism_fold_positions_fold ON prism_fold_positions (fold_id);

-- A Parquet object of records of a day (visible or hidden), or of changes that wait for their first event (pending).
-- The commit of a later fold sets `replaced_by`.
CREATE TABLE prism_record_objects (
    prism_record_object_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    prism_partition_id bigint REFERENCES prism_partitions,
    date date NOT NULL,
    part text NOT NULL CHECK (part IN ('visible', 'hidden', 'pending')),
    bucket_number integer NOT NULL, -- records are spread over buckets by the hash of their key
    cohort integer NOT NULL, -- the quarter of an hour of the first event, counted from 1970; of merges, a part number
    fold_id bigint NOT NULL REFERENCES prism_rewrites,
    replaced_by bigint REFERENCES prism_rewrites,
    content_length bigint NOT NULL,
    row_count bigint NOT NULL CHECK (row_count > 0),
    joined_rows bigint NOT NULL DEFAULT 0, -- records with all groups
    min_time timestamptz,
    max_time timestamptz,
    fingerprint bigint NOT NULL,
    file_format smallint NOT NULL,
    metrics jsonb,
    definition_version integer NOT NULL,
    erasure_id bigint NOT NULL DEFAULT 0, -- nothing in it matches erasures up to this one
    earliest_settle timestamptz,
    latest_settle timestamptz,
    oldest_change timestamptz,
    is_settled boolean NOT NULL DEFAULT false, -- no change can reach its records any more
    merges integer NOT NULL DEFAULT 0,
    is_merged boolean NOT NULL DEFAULT false, -- no merge looks at it again
    fault text, -- why the last fold could not read the object; the bucket waits
    UNIQUE (fold_id, part, date, bucket_number, cohort),
    CHECK ((part = 'pending') = (prism_partition_id IS NULL)),
    CHECK (replaced_by IS NULL OR replaced_by > fold_id)
);
CREATE INDEX prism_record_objects_shown ON prism_record_objects (prism_partition_id)
    WHERE replaced_by IS NULL AND part = 'visible';
CREATE INDEX prism_record_objects_open ON prism_record_objects (prism_table_id, bucket_number)
    WHERE replaced_by IS NULL AND NOT is_settled;
CREATE INDEX prism_record_objects_unmerged ON prism_record_objects (prism_table_id, prism_partition_id)
    WHERE replaced_by IS NULL AND is_settled AND NOT is_merged AND part = 'visible';
CREATE INDEX prism_record_objects_faults ON prism_record_objects (prism_table_id)
    WHERE replaced_by IS NULL AND fault IS NOT NULL;
-- The contents of a day after any fold: publications of that version name them.
CREATE INDEX prism_record_objects_day ON prism_record_objects (prism_partition_id, fold_id) WHERE part = 'visible';
CREATE INDEX prism_record_objects_replaced ON prism_record_objects (prism_partition_id, replaced_by)
    WHERE replaced_by IS NOT NULL AND part = 'visible';
-- The drop of a table deletes rewrites and partitions, and PostgreSQL looks for rows that refer to them.
CREATE INDEX prism_record_objects_partition ON prism_record_objects (prism_partition_id);
CREATE INDEX prism_record_objects_replaced_by ON prism_record_objects (replaced_by) WHERE replaced_by IS NOT NULL;

-- A fold found records of two days to be one record. The record is a row of the earlier day since, and each catalog
-- publishes the earlier day first: readers may see the record twice for a moment, and never miss it.
CREATE TABLE prism_record_moves (
    prism_rewrite_id bigint NOT NULL REFERENCES prism_rewrites,
    from_partition_id bigint NOT NULL REFERENCES prism_partitions,
    to_partition_id bigint NOT NULL REFERENCES prism_partitions,
    PRIMARY KEY (from_partition_id, to_partition_id, prism_rewrite_id)
);
CREATE INDEX prism_record_moves_fold ON prism_record_moves (prism_rewrite_id);
CREATE INDEX prism_record_moves_to ON prism_record_moves (to_partition_id);

-- A small object of changes no fold could read. Folds go on without it and try again from `retry_time` on.
CREATE TABLE prism_set_aside_changes (
    prism_small_object_id bigint PRIMARY KEY,
    prism_partition_id bigint NOT NULL REFERENCES prism_partitions,
    fault text NOT NULL,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_time timestamptz NOT NULL
);
CREATE INDEX prism_set_aside_changes_partition ON prism_set_aside_changes (prism_partition_id);


-- =====================================================================================================================
-- 8  Iceberg
-- =====================================================================================================================

-- The catalog of Iceberg tables in the layout of Iceberg's SQL catalog. A commit to a table is an update of its row.
-- Tables made by another program stay.
CREATE TABLE IF NOT EXISTS iceberg_tables (
    catalog_name varchar(255) NOT NULL,
    table_namespace varchar(255) NOT NULL,
    table_name varchar(255) NOT NULL,
    metadata_location varchar(1000),
    previous_metadata_location varchar(1000),
    iceberg_type varchar(5),
    PRIMARY KEY (catalog_name, table_namespace, table_name)
);
CREATE TABLE IF NOT EXISTS iceberg_namespace_properties (
    catalog_name varchar(255) NOT NULL,
    namespace varchar(255) NOT NULL,
    property_key varchar(255) NOT NULL,
    property_value varchar(1000) NOT NULL,
    PRIMARY KEY (catalog_name, namespace, property_key)
);

-- An Iceberg table as the last commit left it. The stage iceberg reads the table back from the catalog, writes this
-- row, and compares both before the next commit.
CREATE TABLE prism_iceberg_tables (
    prism_table_id bigint PRIMARY KEY REFERENCES prism_tables,
    identifier text NOT NULL,
    table_uuid uuid,
    metadata_location text,
    snapshot_id bigint,
    snapshots integer NOT NULL DEFAULT 0,
    definition_version integer NOT NULL DEFAULT 0,
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'foreign', 'failed')), -- foreign: another's table
    last_error text,
    pace_time timestamptz, -- the pause before the next commit counts from here
    look_time timestamptz
);

-- A commit to an Iceberg table: confirmed at once, settled later by reading the table back, or refused.
CREATE TABLE prism_iceberg_log (
    prism_iceberg_log_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    snapshot_id bigint,
    operation text,
    files_in bigint NOT NULL,
    files_out bigint NOT NULL,
    rows_in bigint NOT NULL,
    rows_out bigint NOT NULL,
    seconds double precision NOT NULL,
    outcome text NOT NULL CHECK (outcome IN ('committed', 'settled', 'refused')),
    message text,
    foreign_snapshots integer NOT NULL DEFAULT 0,
    worker text NOT NULL,
    commit_time timestamptz NOT NULL
);
CREATE INDEX prism_iceberg_log_table ON prism_iceberg_log (prism_table_id, prism_iceberg_log_id);


-- =====================================================================================================================
-- 9  Leases, garbage, drops, the installation
-- =====================================================================================================================

-- The right to work alone at a table (adopt, catalog, erase, fold, gc, history, iceberg) or at a day (rebuild, repair). After a silence
-- longer than the lease another worker takes over, and the next commit of the first finds another token here. A live
-- worker has a lease of each of its tables (live) and one of its presence (worker, a random number). They share out work, and
-- no commit reads them; a drop waits for the former.
CREATE TABLE prism_leases (
    kind text NOT NULL CHECK (kind IN ('adopt', 'catalog', 'erase', 'fold', 'gc', 'history', 'iceberg', 'live', 'rebuild',
        'repair', 'worker')),
    subject_id bigint NOT NULL,
    lease_token uuid NOT NULL,
    worker text NOT NULL,
    start_time timestamptz NOT NULL,
    heartbeat_time timestamptz NOT NULL,
    wanted_tables bigint[] CHECK (kind = 'worker' OR wanted_tables IS NULL), -- of a live worker; null: all tables
    PRIMARY KEY (kind, subject_id)
);

-- A deletion by garbage collection. The object is marked before it and gets `delete_time` after it; the next run
-- settles marks left by a death.
CREATE TABLE prism_gc_log (
    prism_gc_log_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint, -- no foreign key: the log outlives a dropped table
    bucket_name text NOT NULL,
    object_key text NOT NULL,
    content_length bigint,
    partition_date date,
    last_modified timestamptz,
    reason text NOT NULL,
    mark_time timestamptz,
    delete_time timestamptz
);
CREATE UNIQUE INDEX prism_gc_log_marked ON prism_gc_log (bucket_name, object_key) WHERE delete_time IS NULL;
CREATE INDEX prism_gc_log_table ON prism_gc_log (prism_table_id, delete_time);

-- A drop of a table: catalogs forget the table, then the objects go, then the rows. This row stays for ever, so that no
-- table gets the same id or folder again.
CREATE TABLE prism_drops (
    prism_table_id bigint PRIMARY KEY,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    physical_schema_name text,
    physical_table_name text,
    state text NOT NULL DEFAULT 'hiding' CHECK (state IN ('hiding', 'deleting', 'forgetting', 'dropped')),
    object_count bigint NOT NULL,
    content_length bigint NOT NULL,
    worker text NOT NULL,
    begin_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    hidden_time timestamptz, -- no catalog shows the table since
    end_time timestamptz,
    never_read boolean NOT NULL DEFAULT false, -- no batch ever claimed an object, so another table may read them
    CHECK ((state = 'hiding') = (hidden_time IS NULL)),
    CHECK ((state = 'dropped') = (end_time IS NOT NULL))
);
CREATE INDEX prism_drops_open ON prism_drops (prism_table_id) WHERE state <> 'dropped';

-- The lake of this database. The random id also lies as an object in the lake, and every process compares the two when
-- it starts.
CREATE TABLE prism_installation (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    installation_id text NOT NULL,
    bucket_name text NOT NULL,
    key_prefix text NOT NULL,
    endpoint text NOT NULL, -- for people: addresses change, the id decides
    create_time timestamptz NOT NULL,
    mark_time timestamptz -- when the object was first seen in the lake; before that nobody works on it
);


-- =====================================================================================================================
-- 10  DuckLake
-- =====================================================================================================================

-- Clients of DuckLake read the schema prism_lake as their catalog. Views over the rows above make a commit visible at
-- once, and let a client change nothing.

-- The counter of the catalog's states. Open sessions cache tables and mappings by this number and ask for nothing below
-- it again, so the number must never go down or come twice. It is at least the microseconds of the clock: otherwise a
-- restored database would count the numbers of the lost future again.
CREATE TABLE prism_lake_version (
    is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    number bigint NOT NULL
);
-- The lock on the one row makes the numbers visible in their order.
CREATE FUNCTION prism_next_lake_version() RETURNS bigint LANGUAGE sql AS $$
    INSERT INTO prism_lake_version AS v (number) VALUES (CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint))
    ON CONFLICT (is_only) DO UPDATE SET number = greatest(v.number + 1, EXCLUDED.number)
    RETURNING number
$$;

-- The column names in objects of a definition. DuckLake knows them as a mapping.
CREATE TABLE prism_lake_mappings (
    mapping_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    definition_version integer NOT NULL,
    UNIQUE (prism_table_id, definition_version),
    FOREIGN KEY (prism_table_id, definition_version) REFERENCES prism_table_definitions (prism_table_id, version)
);
-- Every definition has a mapping from its transaction on: an object of a definition without one would be hidden.
CREATE FUNCTION prism_map_definition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO prism_lake_mappings (mapping_id, prism_table_id, definition_version) OVERRIDING SYSTEM VALUE
        VALUES (prism_next_lake_version(), NEW.prism_table_id, NEW.version) ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
CREATE TRIGGER prism_table_definitions_mapping AFTER INSERT ON prism_table_definitions
    FOR EACH ROW EXECUTE FUNCTION prism_map_definition();

-- A table that is gone is a new state, too. The first table of a schema takes the schema's id along.
CREATE FUNCTION prism_count_forgotten_table() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM prism_next_lake_version();
    RETURN NULL;
END $$;
CREATE TRIGGER prism_tables_forgotten AFTER DELETE ON prism_tables
    FOR EACH ROW EXECUTE FUNCTION prism_count_forgotten_table();

-- The URL of the lake as DuckDB writes it; of a lake in local folders, the folder.
CREATE VIEW prism_lake_place AS
SELECT CASE WHEN starts_with(endpoint, '/') THEN rtrim(endpoint, '/') || '/' ELSE 's3://' END
    || bucket_name || '/' || key_prefix AS url FROM prism_installation;

-- The tables that are shown, with the definition in force.
CREATE VIEW prism_lake_tables AS
SELECT t.prism_table_id AS table_id, t.schema_name, t.table_name, d.definition,
    coalesce(t.physical_schema_name, t.schema_name) || '.' || coalesce(t.physical_table_name, t.table_name) AS physical
FROM prism_tables t
JOIN prism_table_definitions d ON d.prism_table_id = t.prism_table_id AND d.version = t.definition_version
WHERE coalesce(CAST(d.definition ->> 'ducklake' AS boolean), true);

-- The objects of a day, each row once: the ranges, and the small objects above them. Both change in the transaction
-- with a higher desired_manifest_version. A day of a join table has records instead, with ids above all others.
-- `domain/files/keys.py` builds the same keys. OFFSET 0 makes the planner look up the objects of each day by the index;
-- otherwise it underestimates the days and reads all objects.
CREATE VIEW prism_lake_files AS
SELECT p.prism_table_id AS table_id, d.day, f.* FROM prism_partitions p
CROSS JOIN LATERAL (SELECT to_char(p.partition_date, 'YYYY-MM-DD') AS day OFFSET 0) d
CROSS JOIN LATERAL (
    SELECT 2 * r.upper_bound + 1 AS data_file_id, r.definition_version, r.row_count, r.content_length,
        r.min_time, r.max_time,
        'merged/dt=' || d.day || '/part-' || lpad(CAST(r.lower_bound AS text), 19, '0')
        || '-' || lpad(CAST(r.upper_bound AS text), 19, '0')
        || CASE WHEN r.rewrite_id > 0 THEN '-r' || r.rewrite_id ELSE '' END || '.parquet' AS path
    FROM prism_merge_ranges r
    WHERE r.prism_partition_id = p.prism_partition_id AND r.lower_bound IS NOT NULL
        AND r.upper_bound <= p.desired_manifest_version
    OFFSET 0
) f
WHERE p.desired_manifest_version > 0 AND p.expire_time IS NULL
UNION ALL
SELECT p.prism_table_id, d.day, f.* FROM prism_partitions p
CROSS JOIN LATERAL (SELECT to_char(p.partition_date, 'YYYY-MM-DD') AS day OFFSET 0) d
CROSS JOIN LATERAL (
    SELECT 2 * s.prism_small_object_id, s.definition_version, s.row_count, s.content_length, s.min_time, s.max_time,
        CASE WHEN s.delayed OR s.rewrite_id > 0 THEN 'delayed' ELSE 'live' END || '/dt=' || d.day || '/prism-'
        || lpad(CAST(s.prism_staging_object_id AS text), 19, '0')
        || CASE WHEN s.generation > 0 THEN '-g' || s.generation ELSE '' END
        || CASE WHEN s.rewrite_id > 0 THEN '-r' || s.rewrite_id ELSE '' END || '.parquet'
    FROM prism_small_objects s
    WHERE s.prism_partition_id = p.prism_partition_id AND s.prism_small_object_id > p.desired_manifest_version
    OFFSET 0
) f
WHERE p.last_object_id > p.desired_manifest_version AND p.expire_time IS NULL
UNION ALL
SELECT p.prism_table_id, d.day, f.* FROM prism_partitions p
CROSS JOIN LATERAL (SELECT to_char(p.partition_date, 'YYYY-MM-DD') AS day OFFSET 0) d
CROSS JOIN LATERAL (
    SELECT (CAST(1 AS bigint) << 61) + o.prism_record_object_id, o.definition_version, o.row_count, o.content_length,
        o.min_time, o.max_time,
        'records/dt=' || d.day || '/fold-' || lpad(CAST(o.fold_id AS text), 19, '0')
        || '-' || lpad(CAST(o.bucket_number AS text), 5, '0') || '-' || lpad(CAST(o.cohort AS text), 8, '0')
        || '.parquet'
    FROM prism_record_objects o
    WHERE o.prism_partition_id = p.prism_partition_id AND o.replaced_by IS NULL AND o.part = 'visible'
    OFFSET 0
) f
WHERE p.desired_manifest_version > 0 AND p.last_object_id = 0 AND p.expire_time IS NULL;

-- The columns of a definition and all parts of nested ones, in the order of the table file.
CREATE FUNCTION prism_parts(definition jsonb)
RETURNS TABLE (column_id bigint, parent_column bigint, part jsonb, place bigint) LANGUAGE sql IMMUTABLE AS $$
    SELECT CAST(c ->> 'column_id' AS bigint), NULL, c, place * 10000
    FROM jsonb_array_elements(definition -> 'columns') WITH ORDINALITY AS e (c, place)
    UNION ALL
    SELECT CAST(p ->> 'id' AS bigint), CAST(p ->> 'parent' AS bigint), p, e.place * 10000 + f.place
    FROM jsonb_array_elements(definition -> 'columns') WITH ORDINALITY AS e (c, place)
    CROSS JOIN LATERAL jsonb_array_elements(c -> 'fields') WITH ORDINALITY AS f (p, place)
$$;

CREATE SCHEMA prism_lake;

CREATE VIEW prism_lake.ducklake_metadata AS
SELECT CAST(key AS varchar) AS key, CAST(value AS varchar) AS value, CAST(NULL AS varchar) AS scope,
    CAST(NULL AS bigint) AS scope_id
FROM prism_lake_place CROSS JOIN LATERAL (VALUES ('version', '1.0'), ('created_by', 'prism_assets'),
    ('data_path', url || 'ducklake/'), ('encrypted', 'false')) AS m (key, value);

-- One snapshot: always the present. A session with mappings asks for more from next_file_id on.
CREATE VIEW prism_lake.ducklake_snapshot AS
SELECT CAST(0 AS bigint) AS snapshot_id, now() AS snapshot_time, number AS schema_version,
    CAST(1 AS bigint) << 62 AS next_catalog_id, number + 1 AS next_file_id
FROM (SELECT coalesce(max(number), 0) AS number FROM prism_lake_version) v;

CREATE VIEW prism_lake.ducklake_schema AS
SELECT (CAST(1 AS bigint) << 40)
        + (SELECT min(prism_table_id) FROM prism_tables t WHERE t.schema_name = s.schema_name) AS schema_id,
    CAST(md5('prism schema ' || schema_name) AS uuid) AS schema_uuid, CAST(0 AS bigint) AS begin_snapshot,
    CAST(NULL AS bigint) AS end_snapshot, CAST(schema_name AS varchar) AS schema_name,
    CAST(url || 'ducklake/' || schema_name || '/' AS varchar) AS path, false AS path_is_relative
FROM (SELECT DISTINCT schema_name FROM prism_lake_tables) s CROSS JOIN prism_lake_place;

CREATE VIEW prism_lake.ducklake_table AS
SELECT t.table_id, CAST(md5('prism table ' || t.table_id) AS uuid) AS table_uuid, CAST(0 AS bigint) AS begin_snapshot,
    CAST(NULL AS bigint) AS end_snapshot, s.schema_id, CAST(t.table_name AS varchar) AS table_name,
    CAST(l.url || left(md5(t.physical), 4) || '.' || t.physical || '/' AS varchar) AS path, false AS path_is_relative
FROM prism_lake_tables t JOIN prism_lake.ducklake_schema s USING (schema_name) CROSS JOIN prism_lake_place l;

-- The columns in the order of the table file, each before its parts, and the day. A new column type needs its DuckDB
-- type here.
CREATE VIEW prism_lake.ducklake_column AS
SELECT c.column_id, CAST(0 AS bigint) AS begin_snapshot, CAST(NULL AS bigint) AS end_snapshot, t.table_id,
    c.place AS column_order, CAST(c.column_name AS varchar) AS column_name, CAST(c.column_type AS varchar) AS column_type,
    CAST(NULL AS varchar) AS initial_default, CAST(NULL AS varchar) AS default_value, true AS nulls_allowed,
    c.parent_column, CAST('literal' AS varchar) AS default_value_type,
    CAST(NULL AS varchar) AS default_value_dialect
FROM prism_lake_tables t CROSS JOIN LATERAL (
    SELECT p.column_id, p.parent_column, p.part ->> 'name' AS column_name, CASE p.part ->> 'type'
        WHEN 'string' THEN 'varchar' WHEN 'json' THEN 'varchar' WHEN 'boolean' THEN 'boolean'
        WHEN 'smallint' THEN 'int16' WHEN 'integer' THEN 'int32' WHEN 'bigint' THEN 'int64'
        WHEN 'real' THEN 'float32' WHEN 'double' THEN 'float64'
        WHEN 'timestamp' THEN 'timestamptz' WHEN 'date' THEN 'date'
        WHEN 'struct' THEN 'struct' WHEN 'list' THEN 'list' WHEN 'map' THEN 'map'
        WHEN 'decimal' THEN 'decimal(' || (p.part ->> 'precision') || ',' || (p.part ->> 'scale') || ')' END
        AS column_type, p.place
    FROM prism_parts(t.definition) p
    UNION ALL SELECT 1000000, NULL, 'dt', 'date', 1000000000
) c;

CREATE VIEW prism_lake.ducklake_data_file AS
SELECT f.data_file_id, f.table_id, CAST(0 AS bigint) AS begin_snapshot, CAST(NULL AS bigint) AS end_snapshot,
    CAST(NULL AS bigint) AS file_order, CAST(f.path AS varchar) AS path, true AS path_is_relative,
    CAST('parquet' AS varchar) AS file_format, f.row_count AS record_count, f.content_length AS file_size_bytes,
    CAST(NULL AS bigint) AS footer_size, CAST(0 AS bigint) AS row_id_start, CAST(NULL AS bigint) AS partition_id,
    CAST(NULL AS varchar) AS encryption_key, m.mapping_id, CAST(NULL AS bigint) AS partial_max
FROM prism_lake_tables t JOIN prism_lake_files f USING (table_id)
JOIN prism_lake_mappings m ON m.prism_table_id = f.table_id AND m.definition_version = f.definition_version;

-- Bounds of the day and of the time column, by which DuckDB skips files. A file without a row here is always read.
CREATE VIEW prism_lake.ducklake_file_column_stats AS
SELECT v.data_file_id, v.table_id, v.column_id, CAST(NULL AS bigint) AS column_size_bytes, v.row_count AS value_count,
    CAST(0 AS bigint) AS null_count, CAST(v.min_value AS varchar) AS min_value, CAST(v.max_value AS varchar) AS max_value,
    false AS contains_nan, CAST(NULL AS varchar) AS extra_stats
FROM (
    SELECT f.data_file_id, f.table_id, CAST(1000000 AS bigint) AS column_id, f.row_count,
        f.day AS min_value, f.day AS max_value
    FROM prism_lake_tables t JOIN prism_lake_files f USING (table_id)
    UNION ALL
    SELECT f.data_file_id, f.table_id, c.column_id, f.row_count,
        to_char(f.min_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00'),
        to_char(f.max_time AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00')
    FROM prism_lake_tables t
    CROSS JOIN LATERAL (
        SELECT CAST(c ->> 'column_id' AS bigint) AS column_id FROM jsonb_array_elements(t.definition -> 'columns') c
        WHERE c ->> 'name' = t.definition ->> 'partition_column' AND c ->> 'type' = 'timestamp'
    ) c
    JOIN prism_lake_files f USING (table_id)
    WHERE f.min_time IS NOT NULL AND f.max_time IS NOT NULL
) v;

-- Mappings of hidden tables are shown, too: a session never asks again for an id below one it saw, and a hidden table
-- may be shown again.
CREATE VIEW prism_lake.ducklake_column_mapping AS
SELECT m.mapping_id, m.prism_table_id AS table_id, CAST('map_by_name' AS varchar) AS type
FROM prism_lake_mappings m;

-- Objects have a renamed column under the first name. No file has the day: DuckDB reads it from the folder in the key.
-- Parts have rows, too: with rows of columns alone, DuckDB 1.5 reads null for every field of a struct.
CREATE VIEW prism_lake.ducklake_name_mapping AS
SELECT m.mapping_id, c.column_id, CAST(c.source_name AS varchar) AS source_name, c.column_id AS target_field_id,
    c.parent_column, c.is_partition
FROM prism_lake_mappings m
JOIN prism_table_definitions d ON d.prism_table_id = m.prism_table_id AND d.version = m.definition_version
CROSS JOIN LATERAL (
    SELECT p.column_id, p.parent_column, coalesce(p.part ->> 'stored_as', p.part ->> 'name') AS source_name,
        false AS is_partition
    FROM prism_parts(d.definition) p
    UNION ALL SELECT 1000000, NULL, 'dt', true
) c;

-- The other tables of DuckLake 1.0, always empty here. Columns stand in the order of DuckLake's own CREATE TABLE.
CREATE VIEW prism_lake.ducklake_snapshot_changes AS
SELECT NULL::bigint AS snapshot_id, NULL::varchar AS changes_made, NULL::varchar AS author,
    NULL::varchar AS commit_message, NULL::varchar AS commit_extra_info WHERE false;
CREATE VIEW prism_lake.ducklake_view AS
SELECT NULL::bigint AS view_id, NULL::uuid AS view_uuid, NULL::bigint AS begin_snapshot, NULL::bigint AS end_snapshot,
    NULL::bigint AS schema_id, NULL::varchar AS view_name, NULL::varchar AS dialect, NULL::varchar AS sql,
    NULL::varchar AS column_aliases WHERE false;
CREATE VIEW prism_lake.ducklake_tag AS
SELECT NULL::bigint AS object_id, NULL::bigint AS begin_snapshot, NULL::bigint AS end_snapshot, NULL::varchar AS key,
    NULL::varchar AS value WHERE false;
CREATE VIEW prism_lake.ducklake_column_tag AS
SELECT NULL::bigint AS table_id, NULL::bigint AS column_id, NULL::bigint AS begin_snapshot,
    NULL::bigint AS end_snapshot, NULL::varchar AS key, NULL::varchar AS value WHERE false;
CREATE VIEW prism_lake.ducklake_file_variant_stats AS
SELECT NULL::bigint AS data_file_id, NULL::bigint AS table_id, NULL::bigint AS column_id, NULL::varchar AS variant_path,
    NULL::varchar AS shredded_type, NULL::bigint AS column_size_bytes, NULL::bigint AS value_count,
    NULL::bigint AS null_count, NULL::varchar AS min_value, NULL::varchar AS max_value, NULL::boolean AS contains_nan,
    NULL::varchar AS extra_stats WHERE false;
CREATE VIEW prism_lake.ducklake_delete_file AS
SELECT NULL::bigint AS delete_file_id, NULL::bigint AS table_id, NULL::bigint AS begin_snapshot,
    NULL::bigint AS end_snapshot, NULL::bigint AS data_file_id, NULL::varchar AS path,
    NULL::boolean AS path_is_relative, NULL::varchar AS format, NULL::bigint AS delete_count,
    NULL::bigint AS file_size_bytes, NULL::bigint AS footer_size, NULL::varchar AS encryption_key,
    NULL::bigint AS partial_max WHERE false;
CREATE VIEW prism_lake.ducklake_table_stats AS
SELECT NULL::bigint AS table_id, NULL::bigint AS record_count, NULL::bigint AS next_row_id,
    NULL::bigint AS file_size_bytes WHERE false;
CREATE VIEW prism_lake.ducklake_table_column_stats AS
SELECT NULL::bigint AS table_id, NULL::bigint AS column_id, NULL::boolean AS contains_null,
    NULL::boolean AS contains_nan, NULL::varchar AS min_value, NULL::varchar AS max_value,
    NULL::varchar AS extra_stats WHERE false;
CREATE VIEW prism_lake.ducklake_partition_info AS
SELECT NULL::bigint AS partition_id, NULL::bigint AS table_id, NULL::bigint AS begin_snapshot,
    NULL::bigint AS end_snapshot WHERE false;
CREATE VIEW prism_lake.ducklake_partition_column AS
SELECT NULL::bigint AS partition_id, NULL::bigint AS table_id, NULL::bigint AS partition_key_index,
    NULL::bigint AS column_id, NULL::varchar AS transform WHERE false;
CREATE VIEW prism_lake.ducklake_file_partition_value AS
SELECT NULL::bigint AS data_file_id, NULL::bigint AS table_id, NULL::bigint AS partition_key_index,
    NULL::varchar AS partition_value WHERE false;
CREATE VIEW prism_lake.ducklake_files_scheduled_for_deletion AS
SELECT NULL::bigint AS data_file_id, NULL::varchar AS path, NULL::boolean AS path_is_relative,
    NULL::timestamptz AS schedule_start WHERE false;
CREATE VIEW prism_lake.ducklake_inlined_data_tables AS
SELECT NULL::bigint AS table_id, NULL::varchar AS table_name, NULL::bigint AS schema_version WHERE false;
CREATE VIEW prism_lake.ducklake_schema_versions AS
SELECT NULL::bigint AS begin_snapshot, NULL::bigint AS schema_version, NULL::bigint AS table_id WHERE false;
CREATE VIEW prism_lake.ducklake_macro AS
SELECT NULL::bigint AS schema_id, NULL::bigint AS macro_id, NULL::varchar AS macro_name, NULL::bigint AS begin_snapshot,
    NULL::bigint AS end_snapshot WHERE false;
CREATE VIEW prism_lake.ducklake_macro_impl AS
SELECT NULL::bigint AS macro_id, NULL::bigint AS impl_id, NULL::varchar AS dialect, NULL::varchar AS sql,
    NULL::varchar AS type WHERE false;
CREATE VIEW prism_lake.ducklake_macro_parameters AS
SELECT NULL::bigint AS macro_id, NULL::bigint AS impl_id, NULL::bigint AS column_id, NULL::varchar AS parameter_name,
    NULL::varchar AS parameter_type, NULL::varchar AS default_value, NULL::varchar AS default_value_type WHERE false;
CREATE VIEW prism_lake.ducklake_sort_info AS
SELECT NULL::bigint AS sort_id, NULL::bigint AS table_id, NULL::bigint AS begin_snapshot,
    NULL::bigint AS end_snapshot WHERE false;
CREATE VIEW prism_lake.ducklake_sort_expression AS
SELECT NULL::bigint AS sort_id, NULL::bigint AS table_id, NULL::bigint AS sort_key_index, NULL::varchar AS expression,
    NULL::varchar AS dialect, NULL::varchar AS sort_direction, NULL::varchar AS null_order WHERE false;

-- The role of readers. Roles belong to the whole server: the owner of this database may not be allowed to make one, and
-- another database may make it at the same moment. `metadata/iceberg/lake_role.py` prints the same for an administrator.
DO $$
BEGIN
    IF to_regrole('prism_reader') IS NULL THEN
        BEGIN
            CREATE ROLE prism_reader NOLOGIN CONNECTION LIMIT 32;
            ALTER ROLE prism_reader SET default_transaction_read_only = on;
            ALTER ROLE prism_reader SET statement_timeout = '5min';
            ALTER ROLE prism_reader SET idle_in_transaction_session_timeout = '5min';
            ALTER ROLE prism_reader SET idle_session_timeout = '1h';
        EXCEPTION
            WHEN insufficient_privilege THEN
                RAISE WARNING 'the role prism_reader was not made, as % may not make roles: `prism ducklake role` prints what'
                    ' an administrator runs', current_user;
            WHEN duplicate_object OR unique_violation THEN NULL;
        END;
    END IF;
    IF to_regrole('prism_reader') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA prism_lake TO prism_reader;
        GRANT SELECT ON ALL TABLES IN SCHEMA prism_lake TO prism_reader;
    END IF;
END $$;
