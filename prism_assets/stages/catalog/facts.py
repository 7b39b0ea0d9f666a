"""Facts about partitions of a table, read from PostgreSQL for the lifecycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition, SwitchEvidence
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.metadata import clock
from prism_assets.metadata.days import partitions, retention
from prism_assets.metadata.files import small_objects
from prism_assets.metadata.intake import backlog, history
from prism_assets.metadata.records import folds, record_objects


def closes_from(table: TableDefinition, partition: Partition) -> datetime:
    """The end of the day in the zone of the table; any time where the table flips, or the day is to be closed early."""
    return datetime.min.replace(tzinfo=timezone.utc) if partition.close_early else table.closes_from(partition.date)


@dataclass(frozen=True)
class StoredFacts:
    """`Facts` of the lifecycle.

    Without `for_people`, as in sensors, numbers needed only for sentences are not counted.
    """

    connection: Connection
    table: TableDefinition
    for_people: bool = True

    def closes_from(self, partition: Partition) -> datetime:
        """Returns the end of the day in the table's time zone, or an earlier time for a flip or an erasure."""
        return closes_from(self.table, partition)

    def unfinished_objects(self, partition: Partition) -> int:
        """Counts unfinished objects first claimed by a batch up to the closing mark.

        Without a mark, by any batch so far.
        """
        return backlog.unfinished_before(self.connection, self.table.table_id, partition.closing_batch_id)

    def unfinished_history(self, partition: Partition) -> int | None:
        """Counts by index. Days that are to be closed early, or for a flip, do not wait for their history."""
        if not self._waits_for_history(partition):
            return None
        return history.count_unfinished(self.connection, self.table.table_id, partition.date)

    def without_history(self, days: Sequence[Partition]) -> list[Partition]:
        """Returns the days that wait for no history, by one statement: the caller holds locks."""
        asked = [item.date for item in days if self._waits_for_history(item)]
        waiting = history.find_waiting_days(self.connection, self.table.table_id, asked) if asked else set()
        return [item for item in days if item.date not in waiting]

    def _waits_for_history(self, partition: Partition) -> bool:
        return not (partition.close_early or self.table.is_flipping)

    def unmerged_live(self, partition: Partition) -> int | None:
        """Counts by index. None unless for people."""
        if not self.for_people:
            return None
        wanted = {partition.partition_id: partition.desired_version}
        return small_objects.count_unmerged_live(self.connection, wanted).get(partition.partition_id, 0)

    def expires(self, partition: Partition) -> datetime | None:
        """Returns the expiry by the table's definition."""
        return self.table.expires(partition.date)

    def not_ahead(self, now: datetime) -> datetime:
        """Limits `now` to the database's clock."""
        return clock.not_ahead(self.connection, now)

    def unfinished_before_expiry(self, partition: Partition) -> int:
        """Counts unfinished objects first claimed by a batch up to the retention's mark.

        Without a mark, by any batch so far.
        """
        mark = retention.load_mark(self.connection, self.table.table_id)
        batch_id = mark.batch_id if mark and partition.date < mark.first_day else None
        return backlog.unfinished_before(self.connection, self.table.table_id, batch_id)

    def unfolded_objects(self, partition: Partition) -> int:
        """Counts the objects of a day that folds still have to read: new changes, or unsettled records. By index."""
        if self.table.join is not None:
            return record_objects.count_open(self.connection, partition.partition_id)
        if self.table.change_log is None:
            return 0
        folded = folds.load_positions(self.connection, [partition.partition_id]).get(partition.partition_id, 0)
        return small_objects.count_above(self.connection, partition.partition_id, folded)

    def switch_evidence(self, partition: Partition) -> SwitchEvidence:
        """Sums up both sides of a switch."""
        return partitions.switch_evidence(self.connection, partition.partition_id)
