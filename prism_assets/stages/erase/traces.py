"""Values that erased rows leave beside objects: column metrics in PostgreSQL, and bounds in manifests of Iceberg.

Metrics and bounds of an object are values of its rows. An object without erased rows may keep its metrics and bounds.
So a proof requires that every metric and every bound is of an object that was looked through.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta

from prism_assets.domain.erasures import Erasure
from prism_assets.domain.errors import ObjectMissing, PrismError
from prism_assets.domain.tables import TableDefinition
from prism_assets.domain.words import counted, listed
from prism_assets.failpoints import failpoint
from prism_assets.metadata import erased_metrics, leases, partitions
from prism_assets.metadata.leases import Lease
from prism_assets.stages.context import StageContext

_MANIFEST = ".avro"
_EXAMPLES = 3


def forget_metrics(context: StageContext, table: TableDefinition, lease: Lease, erasure: Erasure) -> None:
    """Forgets the metrics of objects that the erasure did not look through, because nobody needs them any more.

    Each day in a transaction of its own. A death in between leaves the other days to the next call.
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
    """Where PostgreSQL still holds metrics of objects that were not looked through, or None."""
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
    """The manifests in the folder of an Iceberg table, by the objects of whose columns they hold bounds.

    `clean` takes out the objects that the proof read and found without a match. The rest are bounds of objects that are
    gone or unknown.
    """

    of_objects: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, context: StageContext, table: TableDefinition, erasure: Erasure) -> ManifestBounds:
        """Reads the manifests that lie there, manifests that no snapshot names among them.

        Manifests that are younger than the publication of the erasure by a reader lease are not read. A commit lists
        objects of the head before it and new ones, and all of these were looked through by then. Bounds of such objects
        may stay after the objects: a table that takes rows in always has some, and the erasure would never be proved.
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
            except ObjectMissing:  # deleted since it was listed
                continue
            except PrismError:
                found.unread.append(item.key)
        return found

    def clean(self, key: str) -> None:
        """Notes that an object was read, and holds nothing of the erasure."""
        self.of_objects.pop(key, None)

    def left(self, told: Collection[str], age_hours: float) -> str | None:
        """Names manifests that hold bounds of objects other than `told`, which are named anyway; None without any."""
        manifests = sorted({manifest for key, manifest in self.of_objects.items() if key not in told})
        if not manifests:
            return None
        return (
            f"{counted(len(manifests), 'manifest')} of its Iceberg table with bounds of objects that are gone "
            f"({listed(manifests, _EXAMPLES)}): garbage collection deletes a manifest that no snapshot names when it "
            f"is {age_hours:g} hours old, and `prism iceberg optimize` writes one again that others left in the head"
        )
