"""The intended content of a table's days, all at one moment."""

from __future__ import annotations

from collections.abc import Sequence

from prism_assets.domain.days.partitions import Partition
from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.iceberg.snapshots import SnapshotContent
from prism_assets.domain.text import counted
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.iceberg import iceberg_tables
from prism_assets.metadata.records import record_objects
from prism_assets.stages.context import StageContext


def load_days(context: StageContext, keys: TableKeys, table_id: int, *, dirty_only: bool) -> list[SnapshotContent]:
    """Returns the contents of a table's dirty days, or of all days, by date.

    One REPEATABLE READ transaction: it never sees a range together with the small objects it replaces, or records from
    before and after a fold. A commit of Stream or a fold is visible on all of its days or on none.
    """
    with context.database.repeatable_read() as connection:
        found = iceberg_tables.load_days(connection, table_id, dirty_only=dirty_only)
        contents = []
        for partition in found:
            if partition.expired:
                contents.append(SnapshotContent(partition=partition))
                continue
            if partition.is_folded:
                records = record_objects.load_shown(connection, keys, partition.partition_id)
                contents.append(SnapshotContent(partition=partition, records=tuple(records)))
                continue
            ranges = merge_ranges.load_chain(connection, keys, partition.partition_id)
            last = ranges[-1].upper_bound if ranges else 0
            small = small_objects.load_above(connection, keys, partition.partition_id, last)
            contents.append(SnapshotContent(partition=partition, ranges=tuple(ranges), small_objects=tuple(small)))
    return contents


def uncertified(context: StageContext, contents: Sequence[SnapshotContent]) -> dict[Partition, str]:
    """Returns days whose new ranges must not be shown, with the reason: their rows differ from the covered small
    objects.
    """
    reasons = {}
    for content in contents:
        partition = content.partition
        if not content.ranges or content.ranges[-1].upper_bound <= partition.current_version:
            continue
        with context.database.begin() as connection:
            wrong = iceberg_tables.find_uncertified(connection, partition.partition_id, partition.current_version)
        if wrong:
            reasons[partition] = (
                f"the merged range up to {wrong.upper_bound} holds {counted(wrong.rows, 'row')} and not the same as "
                f"the {wrong.covered_rows} of the small objects that it covers: it was not shown; run `prism doctor`"
            )
    return reasons
