"""The facts that decide over partitions of a table, as PostgreSQL has them now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition, SwitchEvidence
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata import clock
from prism_assets.metadata.days import partitions, retention
from prism_assets.metadata.files import small_objects
from prism_assets.metadata.intake import backlog
from prism_assets.metadata.records import folds, record_objects


def closes_from(table: TableDefinition, partition: Partition) -> datetime:
    """The end of the day in the zone of the table; any time where the table flips, or the day is to be closed early."""
    return datetime.min.replace(tzinfo=timezone.utc) if partition.close_early else table.closes_from(partition.date)


@dataclass(frozen=True)
class StoredFacts:
    """`Facts` of the lifecycle. Sensors set `for_people` off: nothing is counted then that only sentences say."""

    connection: Connection
    table: TableDefinition
    for_people: bool = True

    def closes_from(self, partition: Partition) -> datetime:
        """The midnight in the zone of the table, or earlier for a widened column or an erasure."""
        return closes_from(self.table, partition)

    def unfinished_objects(self, partition: Partition) -> int:
        """Those that a batch up to the mark saw first; up to the newest batch where there is no mark yet."""
        return backlog.unfinished_before(self.connection, self.table.table_id, partition.closing_batch_id)

    def unmerged_live(self, partition: Partition) -> int | None:
        """Counts them, by index."""
        if not self.for_people:
            return None
        return small_objects.count_unmerged_live(self.connection, partition.partition_id, partition.desired_version)

    def expires(self, partition: Partition) -> datetime | None:
        """By the definition of the table."""
        return self.table.expires(partition.date)

    def not_ahead(self, now: datetime) -> datetime:
        """Asks the database for its clock."""
        return clock.not_ahead(self.connection, now)

    def unfinished_before_expiry(self, partition: Partition) -> int:
        """Those that a batch up to the mark of the retention saw first; up to the newest where there is none yet."""
        mark = retention.load_mark(self.connection, self.table.table_id)
        batch_id = mark.batch_id if mark and partition.date < mark.first_day else None
        return backlog.unfinished_before(self.connection, self.table.table_id, batch_id)

    def unfolded_objects(self, partition: Partition) -> int:
        """Counts those above what folds have taken, or those that are not settled, by index."""
        if self.table.join is not None:
            return record_objects.count_open(self.connection, partition.partition_id)
        if self.table.change_log is None:
            return 0
        folded = folds.load_positions(self.connection, [partition.partition_id]).get(partition.partition_id, 0)
        return small_objects.count_above(self.connection, partition.partition_id, folded)

    def switch_evidence(self, partition: Partition) -> SwitchEvidence:
        """Sums up both sides."""
        return partitions.switch_evidence(self.connection, partition.partition_id)
