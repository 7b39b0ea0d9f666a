"""How often objects of a partition got another length under their key, and up to which of it publications are rid of it."""

from alembic import op

revision = "0030"
down_revision = "0029"
branch_labels = None
depends_on = None

# A repair that waits for its commit stays one. Of what is there, the revision cannot be told from that of a rebuild or
# an adoption: it counts as a repair, as it did, this once. A worker of the version before that repairs an object still
# raises the revision, by which the head is mended; snapshots that say the old length then go with their time.
_UP = """
ALTER TABLE prism_partitions ADD COLUMN repairs integer NOT NULL DEFAULT 0;
ALTER TABLE prism_publications ADD COLUMN repairs integer NOT NULL DEFAULT 0;
UPDATE prism_partitions p SET repairs = 1 FROM prism_publications q
    WHERE q.prism_partition_id = p.prism_partition_id AND q.publisher = 'iceberg' AND q.withdraw_time IS NULL
        AND q.revision < p.revision;
"""
_DOWN = """
ALTER TABLE prism_publications DROP COLUMN repairs;
ALTER TABLE prism_partitions DROP COLUMN repairs;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
