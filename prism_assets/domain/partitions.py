"""The life of a partition: its states and what the columns of prism_partitions say about them.

new → live → closing → closed → switched → expired. SQL narrows by these columns; what follows from them is decided here
and in `lifecycle.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from prism_assets.domain.words import counted

NEW_VERSION = -1
LIVE_VERSION = 0
GLUE, SYMLINK = "glue", "symlink"
"""The publishers whose days are a live prefix or one list of objects, in the order in which a catalog run asks them."""


class PartitionState(enum.Enum):
    """A step in the life of a partition."""

    NEW = "new"
    LIVE = "live"
    CLOSING = "closing"
    CLOSED = "closed"
    SWITCHED = "switched"
    EXPIRED = "expired"


@dataclass(frozen=True, kw_only=True)
class Partition:
    """A partition, with what is recorded of its publication: one row of the view prism_partition_states.

    `revision` counts changes of what a publication names under the same bounds, `rebuild` is the number of the last
    rebuild, or the last that was taken to write merged objects anew, 0 for none. `repairs` counts those changes that
    gave an object another length under its key, which older snapshots say wrong: it is read with what an Iceberg table
    lists, not with what Glue shows.
    """

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
    published_revision: int = 0
    repairs: int = 0
    published_repairs: int = 0
    rebuild: int = 0
    expired: bool = False

    @property
    def state(self) -> PartitionState:
        """The step of life the partition is in."""
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
        """Whether readers list the live prefix: until the partition is closed."""
        return self.last_live_object_id is None

    @property
    def is_marked(self) -> bool:
        """Whether it is noted up to which batch objects may still become live objects of the day."""
        return self.closing_batch_id is not None

    @property
    def is_folded(self) -> bool:
        """Whether it holds records of a join table: its version is a fold's, and it never had a small object."""
        return self.desired_version > 0 and self.last_object_id == 0

    @property
    def has_nothing_to_show(self) -> bool:
        """Whether readers never had anything to see of it: it belongs in no catalog.

        A day of records that all stay hidden, or one that a rebuild has made and found no row of yet.
        """
        closed_empty = not self.is_open and (self.switched or not self.last_object_id)
        return self.desired_version == LIVE_VERSION and (closed_empty or self.is_waiting_for_rows)

    @property
    def is_waiting_for_rows(self) -> bool:
        """Whether a rebuild has marked the day, which has no row, and has still to close it before it gives it any."""
        return self.is_open and self.is_marked and not self.last_object_id

    @property
    def is_published(self) -> bool:
        """Whether the catalog names the partition at all."""
        return self.current_version != NEW_VERSION


@dataclass(frozen=True, kw_only=True)
class ObjectTotals:
    """A set of objects in figures; the fingerprint is the signed 64-bit sum of those of its rows."""

    objects: int
    rows: int
    fingerprint: int


@dataclass(frozen=True, kw_only=True)
class SwitchEvidence:
    """What must agree before readers are switched: small objects up to the last upper bound, and the ranges.

    `uncovered_live` counts live objects above the last upper bound.
    """

    upper_bound: int | None
    uncovered_live: int
    live: ObjectTotals
    covered: ObjectTotals
    ranges: ObjectTotals


def switch_obstacle(partition: Partition, evidence: SwitchEvidence) -> str | None:
    """Why a partition may not switch to its merged objects, or None if it may."""
    if partition.state is not PartitionState.CLOSED:
        return f"it is {partition.state.value}, not closed"
    if evidence.upper_bound is None:
        return "it was never merged"
    if evidence.uncovered_live:
        return f"{counted(evidence.uncovered_live, 'live object is', 'live objects are')} not merged yet"
    return contradiction(evidence)


def contradiction(evidence: SwitchEvidence) -> str | None:
    """What no further merge can put right: ranges that hold other rows than the small objects they cover."""
    covered, ranges = evidence.covered, evidence.ranges
    if evidence.upper_bound is None or (covered.rows, covered.fingerprint) == (ranges.rows, ranges.fingerprint):
        return None
    return (
        f"the merged ranges hold {counted(ranges.rows, 'row')} and not the same as the {covered.rows:,} "
        "rows of the small objects they cover"
    )


@dataclass(frozen=True)
class Publication:
    """What a partition should look like in the catalog: the live prefix, or one manifest.

    `revision` counts how often objects that a manifest may name got other lengths or keys, by repairs and rebuilds.
    """

    version: int
    published_object_id: int
    revision: int = 0

    @property
    def is_live_prefix(self) -> bool:
        """Whether readers list the live prefix themselves."""
        return self.version == LIVE_VERSION and self.published_object_id == 0

    def is_before(self, other: Publication) -> bool:
        """Whether it shows less than another one, of which nothing is taken back: publications go upwards only."""
        return self != other and (
            self.version <= other.version
            and self.published_object_id <= other.published_object_id
            and self.revision <= other.revision
        )


def least_shown(shown: Collection[Publication | None]) -> Publication | None:
    """What readers of several catalogs see at least; None if that is not known of one of them.

    All catalogs show the same publications, each going upwards by its own pace: the least of each number says what
    none of them goes back behind, also where no catalog shows just that.
    """
    known = [item for item in shown if item is not None]
    if not known or len(known) < len(shown):
        return None
    return Publication(
        min(item.version for item in known),
        min(item.published_object_id for item in known),
        min(item.revision for item in known),
    )


def wanted_publication(partition: Partition) -> Publication:
    """What the catalog should show: the live prefix, all small objects, or ranges and the small objects above.

    Of a partition that is not expired and has something to show: others should not be in it at all.
    """
    if partition.is_open:
        return Publication(LIVE_VERSION, 0)
    if not partition.switched:
        return Publication(LIVE_VERSION, partition.last_object_id, partition.revision)
    last = max(partition.last_object_id, partition.desired_version)
    return Publication(partition.desired_version, last, partition.revision)


def current_publication(partition: Partition) -> Publication | None:
    """What the catalog shows as far as PostgreSQL knows, or None if the partition is not in it."""
    if not partition.is_published:
        return None
    return Publication(partition.current_version, partition.published_object_id or 0, partition.published_revision)


def rebuild_obstacle(partition: Partition, *, open_erasures: int, erased_objects: int) -> str | None:
    """Why a partition cannot be rebuilt now, or None if it can.

    Readers of an open day list its folder: there is no one step in which they would find other objects in the place of
    those that lie there, and neither both nor none. Which lines of staging objects were erased nobody has recorded.
    """
    if partition.is_open:
        return (
            f"it is {partition.state.value}: readers list its folder, where no objects can take the place of others in "
            "one step; rebuild it when it is closed, which a catalog run does behind the end of the day"
        )
    if partition.expired:
        return "it is expired: it is older than its table keeps rows, and nobody is sent there any more"
    if open_erasures:
        return _being_erased(open_erasures)
    if erased_objects:
        hold = counted(erased_objects, "of its staging objects holds", "of its staging objects hold")
        return f"{hold} rows that were erased, or may have been, and which lines these are is not recorded"
    return None


def _being_erased(open_erasures: int) -> str:
    are = counted(open_erasures, "erasure of its table is", "erasures of its table are")
    return f"{are} not proved yet: repeat when that is done; `prism erase --status` says what holds it up"


def new_day_obstacle(*, is_over: bool, is_kept: bool, open_erasures: int) -> str | None:
    """Why a rebuild cannot make a day that has no row yet, or None if it can: such a day is closed first."""
    if not is_over:
        return "it is not over, and readers of such a day list its folder; rebuild it behind the end of the day"
    if not is_kept:
        return "it is older than its table keeps rows"
    return _being_erased(open_erasures) if open_erasures else None


def needed_above(partition: Partition, oldest_version: int | None = None) -> int:
    """The small objects with higher ids are what readers or merges need now; those up to it may be gone.

    Before the switch that is all of them: readers list or name them, whether merged or not. After it, as long as the
    catalog still shows the manifest of before, too; then only those above the ranges that it shows. Readers that may
    still have an earlier manifest are told by its `oldest_version`. Of an expired day it is none.
    """
    if partition.expired:
        return partition.last_object_id
    version = partition.current_version if oldest_version is None else oldest_version
    return max(version, LIVE_VERSION) if partition.switched else 0
