"""How far Dagster was told what partitions hold, so that work done outside of it is told once."""

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
CREATE TABLE prism_materializations (
    prism_partition_id bigint PRIMARY KEY REFERENCES prism_partitions,
    live bigint NOT NULL,
    merged bigint NOT NULL,
    catalog bigint NOT NULL
)
""")


def downgrade() -> None:
    op.execute("DROP TABLE prism_materializations")
