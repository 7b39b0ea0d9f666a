"""What is known of the values of some columns in each object: nulls and bounds, by column id."""

from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

_UP = """
ALTER TABLE prism_small_objects ADD COLUMN metrics jsonb;
ALTER TABLE prism_merge_ranges ADD COLUMN metrics jsonb;

-- A merge of the version before extends a range and knows no bounds: those of the shorter range must not stay, as a
-- reader that plans by them would pass over rows.
CREATE FUNCTION prism_forget_metrics() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.metrics := NULL;
    RETURN NEW;
END $$;
CREATE TRIGGER prism_merge_ranges_metrics BEFORE UPDATE OF upper_bound ON prism_merge_ranges
    FOR EACH ROW WHEN (NEW.upper_bound > OLD.upper_bound AND NEW.metrics IS NOT DISTINCT FROM OLD.metrics)
    EXECUTE FUNCTION prism_forget_metrics();
"""
_DOWN = """
DROP TRIGGER prism_merge_ranges_metrics ON prism_merge_ranges;
DROP FUNCTION prism_forget_metrics();
ALTER TABLE prism_merge_ranges DROP COLUMN metrics;
ALTER TABLE prism_small_objects DROP COLUMN metrics;
"""


def upgrade() -> None:
    op.execute(_UP)


def downgrade() -> None:
    op.execute(_DOWN)
