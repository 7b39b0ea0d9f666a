"""Objects shown by a publication of a partition."""

from __future__ import annotations

from sqlalchemy import Connection

from prism_assets.domain.days.partitions import Partition, Publication
from prism_assets.domain.files.data_file import PartitionContent
from prism_assets.domain.files.keys import TableKeys
from prism_assets.metadata.files import merge_ranges, small_objects
from prism_assets.metadata.records import record_objects


def load_content(
    connection: Connection, keys: TableKeys, partition: Partition, publication: Publication
) -> PartitionContent:
    """Returns the objects that a publication shows: those of records in a folded day, otherwise the ranges up to its
    version and the small objects above them.

    The caller holds the lock of the partition's row, as commits of Stream, Merge and folds do, or reads one snapshot.
    So ranges and small objects agree, and no record is in two objects.
    """
    if partition.is_folded:
        records = record_objects.load_shown(connection, keys, partition.partition_id)
        return PartitionContent(publication=publication, ranges=(), small_objects=(), records=tuple(records))
    chain = merge_ranges.load_chain(connection, keys, partition.partition_id) if partition.switched else []
    small = small_objects.load_above(connection, keys, partition.partition_id, publication.version)
    return PartitionContent(
        publication=publication,
        ranges=tuple(item for item in chain if item.upper_bound <= publication.version),
        small_objects=tuple(
            item for item in small if publication.is_live_prefix or item.object_id <= publication.published_object_id
        ),
    )
