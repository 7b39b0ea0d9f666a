"""Small objects are of the generation of their staging object, and which later version of an object was told."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

_UP = """
-- What the catalog sends readers to is a key with the generation in it. A worker of a version that knows no generations
-- writes under the keys of the first one, which may be removed at any time once the object was begun anew: its commit
-- is refused here, as nothing else of it can be changed. Reads rows that the batch which commits has claimed.
CREATE FUNCTION prism_check_generation() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    SELECT o.prism_staging_object_id AS id, a.generation AS written, o.generation AS current INTO wrong
        FROM added a JOIN prism_staging_objects o USING (prism_staging_object_id)
        WHERE a.generation <> o.generation LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'staging object % was begun anew: rows under keys of generation % are not those of generation %;'
            ' stop all workers of older versions', wrong.id, wrong.written, wrong.current
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER prism_small_objects_generation AFTER INSERT ON prism_small_objects
    REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION prism_check_generation();

-- The version that was seen under the key after the object had been converted: another one is told again.
ALTER TABLE prism_staging_objects ADD COLUMN overwritten_etag text, ADD COLUMN overwritten_send_time timestamptz;
"""

_DOWN = """
ALTER TABLE prism_staging_objects DROP COLUMN overwritten_etag, DROP COLUMN overwritten_send_time;
DROP TRIGGER prism_small_objects_generation ON prism_small_objects;
DROP FUNCTION prism_check_generation;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
