"""Objects shown by publications of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition, Publication
from prism_assets.domain.files.data_file import MergedRange, PartitionContent, SmallObject
from prism_assets.domain.files.keys import TableKeys
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.records import record_objects


def load_content(
    connection: Connection, keys: TableKeys, partition: Partition, publication: Publication
) -> PartitionContent:
    """Returns the objects that a publication of one partition shows, as `load_contents` does."""
    return load_contents(connection, keys, {partition: publication})[partition.date]


def load_contents(
    connection: Connection, keys: TableKeys, publications: Mapping[Partition, Publication]
) -> dict[date, PartitionContent]:
    """Returns the objects that publications of partitions of a table show: those of records in a folded day, otherwise
    the ranges up to its version and the small objects above them.

    The caller holds the locks of the partitions' rows, as commits of Stream, Merge and folds do, or reads one snapshot.
    So ranges and small objects agree, and no record is in two objects. Two statements for all days that are not folded.
    """
    plain = {item: publication for item, publication in publications.items() if not item.is_folded}
    switched = [item.partition_id for item in plain if item.switched]
    chains = merge_ranges.load_day_chains(connection, keys, switched) if switched else {}
    bounds = {item.partition_id: publication.version for item, publication in plain.items()}
    above = small_objects.load_days_above(connection, keys, bounds) if bounds else {}
    return {
        item.date: _folded(connection, keys, item, publication)
        if item.is_folded
        else _unfolded(publication, chains.get(item.date, ()), above.get(item.date, ()))
        for item, publication in publications.items()
    }


def _folded(
    connection: Connection, keys: TableKeys, partition: Partition, publication: Publication
) -> PartitionContent:
    records = record_objects.load_shown(connection, keys, partition.partition_id)
    return PartitionContent(publication=publication, ranges=(), small_objects=(), records=tuple(records))


def _unfolded(publication: Publication, chain: Sequence[MergedRange], above: Sequence[SmallObject]) -> PartitionContent:
    return PartitionContent(
        publication=publication,
        ranges=tuple(item for item in chain if item.upper_bound <= publication.version),
        small_objects=tuple(
            item for item in above if publication.is_live_prefix or item.object_id <= publication.published_object_id
        ),
    )
