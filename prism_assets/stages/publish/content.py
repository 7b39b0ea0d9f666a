"""What a publication of a partition shows: which objects, and where readers are sent."""

from __future__ import annotations

from datetime import date

from sqlalchemy import Connection

from prism_assets.domain.files import PartitionContent
from prism_assets.domain.keys import TableKeys
from prism_assets.domain.partitions import Partition, Publication
from prism_assets.domain.tables import TableDefinition
from prism_assets.metadata import merge_ranges, small_objects
from prism_assets.objectstore.lake import Lake


def load_content(
    connection: Connection, keys: TableKeys, partition: Partition, publication: Publication
) -> PartitionContent:
    """The ranges up to the version of a publication, and the small objects above them that it shows.

    The caller holds the lock of the partition's row, which commits of Stream and Merge take too, or looks at one
    snapshot: ranges and small objects agree.
    """
    chain = merge_ranges.load_chain(connection, keys, partition.partition_id) if partition.switched else []
    small = small_objects.load_above(connection, keys, partition.partition_id, publication.version)
    return PartitionContent(
        ranges=tuple(item for item in chain if item.upper_bound <= publication.version),
        small_objects=tuple(
            item for item in small if publication.is_live_prefix or item.object_id <= publication.published_object_id
        ),
    )


def manifest_key(keys: TableKeys, day: date, publication: Publication) -> str | None:
    """The manifest of a publication, or None where readers list the live prefix."""
    if publication.is_live_prefix:
        return None
    return keys.manifest(day, publication.version, publication.published_object_id, publication.revision)


def location_of(lake: Lake, table: TableDefinition, day: date, publication: Publication) -> str:
    """Where the catalog must send readers of a partition for a publication: the live prefix, or the manifest."""
    keys = lake.keys(table)
    return lake.url(manifest_key(keys, day, publication) or keys.live_prefix(day))
