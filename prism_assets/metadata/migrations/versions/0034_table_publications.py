"""What each publisher shows of each table, in a table of its own; that of Glue stood in the table's row."""

from alembic import op

revision = "0034"
down_revision = "0033"
branch_labels = None
depends_on = None

# The columns that move are locked before anything else, so that nobody who has read them writes them meanwhile.
# `removed_from` are the publishers that a name of before is gone from; all of them before `remove_time`.
_UP = """
LOCK TABLE prism_tables IN ACCESS EXCLUSIVE MODE;
CREATE TABLE prism_table_publications (
    prism_table_id bigint NOT NULL REFERENCES prism_tables,
    publisher text NOT NULL,
    defined_version integer NOT NULL DEFAULT 0,
    compared_time timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (prism_table_id, publisher)
);
INSERT INTO prism_table_publications (prism_table_id, publisher, defined_version, compared_time)
    SELECT prism_table_id, 'glue', defined_version, compared_time FROM prism_tables;
ALTER TABLE prism_tables DROP COLUMN defined_version, DROP COLUMN compared_time;

ALTER TABLE prism_publication_notes ADD COLUMN publisher text NOT NULL DEFAULT 'glue';
ALTER TABLE prism_publication_notes ALTER COLUMN publisher DROP DEFAULT;
ALTER TABLE prism_former_names ADD COLUMN removed_from text[] NOT NULL DEFAULT '{}';

-- As before, for every publisher that shows manifests, or lists of symlinks, of the table.
CREATE OR REPLACE FUNCTION prism_mark_publications() RETURNS trigger LANGUAGE plpgsql AS $$
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
"""
_REFUSE = """
DO $$ BEGIN
    IF EXISTS (SELECT 1 FROM prism_table_publications WHERE publisher <> 'glue') THEN
        RAISE EXCEPTION 'tables are shown by symlinks, whose readers the version before does not know: take `symlink` '
            'out of their files, apply them, and run `prism catalog`';
    END IF;
END $$
"""
_DOWN = """
ALTER TABLE prism_tables ADD COLUMN defined_version integer NOT NULL DEFAULT 0,
    ADD COLUMN compared_time timestamptz NOT NULL DEFAULT clock_timestamp();
UPDATE prism_tables t SET defined_version = p.defined_version, compared_time = p.compared_time
    FROM prism_table_publications p WHERE p.prism_table_id = t.prism_table_id;
CREATE OR REPLACE FUNCTION prism_mark_publications() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.last_live_object_id IS NOT NULL THEN
        INSERT INTO prism_publications AS q
            (prism_partition_id, publisher, version, published_object_id, revision, dirty)
        VALUES (NEW.prism_partition_id, 'glue', -1, 0, 0, true)
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
ALTER TABLE prism_former_names DROP COLUMN removed_from;
ALTER TABLE prism_publication_notes DROP COLUMN publisher;
DROP TABLE prism_table_publications;
UPDATE prism_table_definitions SET definition = definition - 'symlink' WHERE definition ? 'symlink';
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    """Refused while tables are shown by symlinks: the version before would delete what their readers need.

    Definitions that ask, or asked, for symlinks say so no more: it could not read them.
    """
    op.execute(_REFUSE)
    op.execute(_DOWN)
