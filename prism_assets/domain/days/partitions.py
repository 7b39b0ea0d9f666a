"""The states of a partition, derived from the columns of prism_partitions.

new → live → closing → closed → switched → expired. SQL narrows by these columns; this module and `lifecycle.py` decide.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from prism_assets.domain.text import counted

NEW_VERSION = -1
LIVE_VERSION = 0
GLUE, SYMLINK = "glue", "symlink"
"""Publishers whose days are a live prefix or one object list, in the order of a catalog run."""


class PartitionState(enum.Enum):
    """A state of a partition."""

    NEW = "new"
    LIVE = "live"
    CLOSING = "closing"
    CLOSED = "closed"
    SWITCHED = "switched"
    EXPIRED = "expired"


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition and its recorded publication: one row of the view prism_partition_states."""

    partition_id: int
    table_id: int
    date: date
    current_version: int
    desired_version: int
    last_live_object_id: int | None
    switched: bool
    closing_batch_id: int | None
    published_object_id: int | None
    last_object_id: int
    revision: int = 0
    """Counts changes of a publication's content under the same bounds."""
    published_revision: int = 0
    repairs: int = 0
    """Counts those changes that gave an object another length under its key, so that older Iceberg snapshots state a
    wrong one. Read for Iceberg tables only.
    """
    published_repairs: int = 0
    expired: bool = False
    close_early: bool = False
    """An erasure asks for the close before the day ends."""

    @property
    def state(self) -> PartitionState:
        """The state of the partition."""
        if self.expired:
            return PartitionState.EXPIRED
        if self.switched:
            return PartitionState.SWITCHED
        if self.last_live_object_id is not None:
            return PartitionState.CLOSED
        if self.closing_batch_id is not None:
            return PartitionState.CLOSING
        return PartitionState.NEW if self.current_version == NEW_VERSION else PartitionState.LIVE

    @property
    def is_open(self) -> bool:
        """Whether readers list the live prefix, until the partition is closed."""
        return self.last_live_object_id is None

    @property
    def is_marked(self) -> bool:
        """Whether the closing mark is set: the batch up to which objects may still become live."""
        return self.closing_batch_id is not None

    @property
    def is_folded(self) -> bool:
        """Whether it holds a join table's records: its version is a fold's, and it never had a small object."""
        return self.desired_version > 0 and self.last_object_id == 0

    @property
    def has_nothing_to_show(self) -> bool:
        """Whether readers never saw any content, so the partition belongs in no catalog.

        Examples are a day whose records are all hidden, and a day made by a rebuild that found no row yet.
        """
        closed_empty = not self.is_open and (self.switched or not self.last_object_id)
        return self.desired_version == LIVE_VERSION and (closed_empty or self.is_waiting_for_rows)

    @property
    def is_waiting_for_rows(self) -> bool:
        """Whether a rebuild has marked the empty day, and must close it before it adds rows."""
        return self.is_open and self.is_marked and not self.last_object_id

    @property
    def is_published(self) -> bool:
        """Whether the catalog has the partition."""
        return self.current_version != NEW_VERSION


@dataclass(frozen=True, kw_only=True)
class ObjectTotals:
    """Sums over a set of objects. The fingerprint is the signed 64-bit sum of row fingerprints."""

    objects: int
    rows: int
    fingerprint: int


@dataclass(frozen=True, kw_only=True)
class SwitchEvidence:
    """Sums that must agree before a switch: small objects up to the last upper bound, and ranges."""

    upper_bound: int | None
    uncovered_live: int
    """Live objects above the last upper bound."""
    live: ObjectTotals
    covered: ObjectTotals
    ranges: ObjectTotals


def switch_obstacle(partition: Partition, evidence: SwitchEvidence) -> str | None:
    """Returns why a partition may not switch to its merged objects, or None."""
    if partition.state is not PartitionState.CLOSED:
        return f"it is {partition.state.value}, not closed"
    if evidence.upper_bound is None:
        return "it was never merged"
    if evidence.uncovered_live:
        return f"{counted(evidence.uncovered_live, 'live object is', 'live objects are')} not merged yet"
    return contradiction(evidence)


def contradiction(evidence: SwitchEvidence) -> str | None:
    """Returns the mismatch between ranges and the small objects they cover, or None. No later merge resolves it."""
    covered, ranges = evidence.covered, evidence.ranges
    if evidence.upper_bound is None or (covered.rows, covered.fingerprint) == (ranges.rows, ranges.fingerprint):
        return None
    return (
        f"the merged ranges hold {counted(ranges.rows, 'row')} and not the same as the {covered.rows:,} "
        "rows of the small objects they cover"
    )


@dataclass(frozen=True)
class Publication:
    """The content of a partition in the catalog: the live prefix, or one manifest.

    `revision` counts new keys and lengths of objects in the manifest, from rewrites and repairs.
    """

    version: int
    published_object_id: int
    revision: int = 0

    @property
    def is_live_prefix(self) -> bool:
        """Whether readers list the live prefix."""
        return self.version == LIVE_VERSION and self.published_object_id == 0

    def is_before(self, other: Publication) -> bool:
        """Whether it shows less than `other` and nothing beyond it. Publications only move forward."""
        return self != other and (
            self.version <= other.version
            and self.published_object_id <= other.published_object_id
            and self.revision <= other.revision
        )


def least_shown(shown: Collection[Publication | None]) -> Publication | None:
    """Returns the least that readers of several catalogs see, or None if one catalog's state is unknown.

    All catalogs show the same sequence of publications at their own pace. The minimum of each number is a bound no
    catalog falls behind, even if none shows exactly this publication.
    """
    publications = [item for item in shown if item is not None]
    if not publications or len(publications) < len(shown):
        return None
    return Publication(
        min(item.version for item in publications),
        min(item.published_object_id for item in publications),
        min(item.revision for item in publications),
    )


def wanted_publication(partition: Partition) -> Publication:
    """Returns the content the catalog should show: the live prefix, all small objects, or ranges and small objects
    above them.

    Not for expired partitions, nor for partitions without content.
    """
    if partition.is_open:
        return Publication(LIVE_VERSION, 0)
    if not partition.switched:
        return Publication(LIVE_VERSION, partition.last_object_id, partition.revision)
    last = max(partition.last_object_id, partition.desired_version)
    return Publication(partition.desired_version, last, partition.revision)


def current_publication(partition: Partition) -> Publication | None:
    """Returns the recorded content of the catalog, or None if it does not have the partition."""
    if not partition.is_published:
        return None
    return Publication(partition.current_version, partition.published_object_id or 0, partition.published_revision)


def rebuild_obstacle(
    partition: Partition, *, open_erasures: int, erased_objects: int, archived_objects: int
) -> str | None:
    """Returns why a partition cannot be rebuilt now, or None.

    Readers of an open day list its folder, and no single step replaces objects there; readers could see both versions
    or neither. Erased lines of staging objects are not recorded. The archive has rows of objects whose staging objects
    are gone, so no rebuild can make these rows again.
    """
    if partition.is_open:
        return (
            f"it is {partition.state.value}: readers list its folder, where objects cannot be replaced in one step; "
            "rebuild it once a catalog run has closed it, after the end of the day"
        )
    if partition.expired:
        return "it is expired: older than its table's retention, and hidden from readers"
    if open_erasures:
        return _being_erased(open_erasures)
    if erased_objects:
        hold = counted(erased_objects, "of its staging objects holds", "of its staging objects hold")
        return f"{hold} erased rows, or may hold some, and nobody recorded their lines"
    if archived_objects:
        objects = counted(archived_objects, "small object", "small objects")
        return (
            f"its staging objects are gone, and the metadata of {objects} is in the archive "
            "(PRISM_ARCHIVE_AFTER_DAYS): nothing can make its rows again, and readers keep them"
        )
    return None


def _being_erased(open_erasures: int) -> str:
    are = counted(open_erasures, "erasure of its table is", "erasures of its table are")
    return f"{are} not proved yet: repeat afterwards; `prism erase --status` says what blocks it"


def new_day_obstacle(*, is_over: bool, is_kept: bool, open_erasures: int) -> str | None:
    """Returns why a rebuild cannot create a day without rows yet, or None. Such a day is closed first."""
    if not is_over:
        return "it is not over, and readers list its folder; rebuild it after the end of the day"
    if not is_kept:
        return "it is older than its table's retention"
    return _being_erased(open_erasures) if open_erasures else None


def needed_above(partition: Partition, oldest_version: int | None = None) -> int:
    """Returns the id above which readers or merges need small objects. Up to it they may be gone.

    Before the switch all are needed. After it all are needed while the catalog shows the earlier manifest; then only
    those above its ranges. `oldest_version` is the earliest manifest readers may still use. Expired days need none.
    """
    if partition.expired:
        return partition.last_object_id
    version = partition.current_version if oldest_version is None else oldest_version
    return max(version, LIVE_VERSION) if partition.switched else 0
