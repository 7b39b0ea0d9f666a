"""Values of erased rows outside of objects: column metrics in PostgreSQL, and bounds in manifests of Iceberg.

Metrics and bounds of an object are values of its rows, and an object without erased rows may keep them. So a proof
requires that every metric and every bound belongs to a searched object.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from prism_assets.domain.erasures.rules import Erasure
from prism_assets.domain.errors import ObjectMissing, PrismError
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted, listed
from prism_assets.failpoints import failpoint
from prism_assets.metadata import leases
from prism_assets.metadata.days import partitions
from prism_assets.metadata.erasures import erased_metrics
from prism_assets.metadata.leases import Lease
from prism_assets.stages.context import StageContext

_MANIFEST = ".avro"
_EXAMPLES = 3


def forget_metrics(context: StageContext, table: TableDefinition, lease: Lease, erasure: Erasure) -> None:
    """Deletes the metrics of objects the erasure did not search, because nobody needs them any more.

    Each day has its own transaction. A death leaves the remaining days to the next call.
    """
    with context.database.begin() as connection:
        days = [item.partition_id for item in partitions.load_table_partitions(connection, table.table_id)]
    for partition_id in days:
        with context.database.begin() as connection:
            leases.hold(connection, lease)
            erased_metrics.forget_metrics(connection, partition_id, erasure)
            failpoint("erase.in_metrics")
    failpoint("erase.after_metrics")


def metrics_left(context: StageContext, erasure: Erasure) -> str | None:
    """Returns a sentence about metrics of unsearched objects in PostgreSQL, or None."""
    with context.database.begin() as connection:
        found = erased_metrics.count_metrics(connection, erasure)
    if not found:
        return None
    places = ", ".join(f"{count} in {name}" for name, count in sorted(found.items()))
    return (
        f"PostgreSQL holds column metrics of objects that it did not look through ({places}): the next call drops them"
    )


@dataclass
class ManifestBounds:
    """The manifests of an Iceberg table, by the objects whose bounds they have.

    `discard` removes objects read by the proof without a match. The rest are bounds of deleted or unknown objects.
    """

    of_objects: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, context: StageContext, table: TableDefinition, erasure: Erasure) -> ManifestBounds:
        """Reads the manifests in the table's folder, including manifests outside of any snapshot.

        Skips manifests written more than a reader lease after the erasure's publication. A commit lists objects of the
        previous head and new ones, and by then all of these were searched. Their bounds may outlive the objects: a
        table with new rows always has some, and would otherwise never prove an erasure.
        """
        found = cls()
        prefix = context.lake.keys(table).iceberg_prefix
        lease = timedelta(hours=context.settings.gc_reader_lease_hours)
        without = erasure.published_time + lease if erasure.published_time else None
        for item in context.stores.list(context.lake.bucket, prefix):
            if not item.key.endswith(_MANIFEST) or (without and item.last_modified > without):
                continue
            try:
                found.of_objects |= dict.fromkeys(context.iceberg.bounded_keys(item.key), item.key)
            except ObjectMissing:  # deleted since the listing
                continue
            except PrismError:
                found.unread.append(item.key)
        return found

    def discard(self, key: str) -> None:
        """Notes an object that was read without a match."""
        self.of_objects.pop(key, None)

    def left(self, reported_keys: Collection[str], age_hours: float) -> str | None:
        """Returns a sentence about manifests with bounds of objects not in `reported_keys`, or None."""
        manifests = sorted({manifest for key, manifest in self.of_objects.items() if key not in reported_keys})
        if not manifests:
            return None
        return (
            f"{counted(len(manifests), 'manifest')} of its Iceberg table with bounds of objects that are gone "
            f"({listed(manifests, _EXAMPLES)}): garbage collection deletes a manifest that no snapshot names when it "
            f"is {age_hours:g} hours old, and `prism iceberg optimize` writes one again that others left in the head"
        )
