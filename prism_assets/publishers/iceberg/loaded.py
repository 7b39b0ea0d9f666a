"""An Iceberg table as one load of it found it: its head, its snapshots, and what it lists of each day."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, datetime, timezone
from functools import cached_property

from pyiceberg.manifest import ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadataV1
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from prism_assets.domain.snapshots import ListedFile, RetainedSnapshot, is_daily_tag
from prism_assets.domain.tables import TableDefinition
from prism_assets.publishers.iceberg.avro import read_entries, read_manifests
from prism_assets.publishers.iceberg.errors import translated
from prism_assets.publishers.iceberg.manifests import LARGEST_MANIFEST, day_of, entries_of, listed_file
from prism_assets.publishers.iceberg.schema import MARK, iceberg_schema


@dataclass(frozen=True)
class Listing:
    """All files of a table by day. `mixed` are the days some of whose entries lie in manifests of several days.

    `has_foreign_files` if there are files that are of no day, or files that delete rows: no commit of ours makes any.
    """

    files: Mapping[date, tuple[ListedFile, ...]]
    mixed: frozenset[date]
    has_foreign_files: bool


class LoadedTable:
    """What the catalog said of a table when it was asked. Reads manifests as they are needed, and changes nothing."""

    def __init__(self, table: Table, mark: str) -> None:
        self.table = table
        self._mark = mark

    @property
    def identifier(self) -> str:
        """`database.table`."""
        return ".".join(self.table.name())

    @property
    def table_uuid(self) -> str:
        """Never changes; a table of the same name with another one is another table."""
        return str(self.table.metadata.table_uuid)

    @property
    def metadata_location(self) -> str:
        """The metadata file that the catalog points at."""
        return self.table.metadata_location

    @property
    def snapshot_id(self) -> int | None:
        """The head; None before the first commit."""
        return self.table.metadata.current_snapshot_id

    @property
    def last_sequence_number(self) -> int:
        """The highest one that any snapshot ever had."""
        metadata = self.table.metadata
        return 0 if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number

    @property
    def is_ours(self) -> bool:
        """Whether this installation made the table."""
        return self.table.metadata.properties.get(MARK) == self._mark

    @cached_property
    def snapshots(self) -> tuple[RetainedSnapshot, ...]:
        """All that are retained."""
        return tuple(
            RetainedSnapshot(
                snapshot_id=item.snapshot_id,
                parent_id=item.parent_snapshot_id,
                sequence_number=item.sequence_number or 0,
                time=datetime.fromtimestamp(item.timestamp_ms / 1000, timezone.utc),
                is_ours=self._made(item),
            )
            for item in self.table.metadata.snapshots
        )

    def _made(self, snapshot: Snapshot) -> bool:
        return snapshot.summary is not None and snapshot.summary.additional_properties.get(MARK) == self._mark

    @property
    def referenced(self) -> frozenset[int]:
        """The snapshots that tags name, and branches of others. The head may be among them."""
        return frozenset(ref.snapshot_id for name, ref in self.table.metadata.refs.items() if name != MAIN_BRANCH)

    @property
    def tags(self) -> frozenset[str]:
        """The names of all tags."""
        refs = self.table.metadata.refs
        return frozenset(name for name, ref in refs.items() if ref.snapshot_ref_type is SnapshotRefType.TAG)

    @property
    def own_tags(self) -> dict[str, int]:
        """The tags that are set daily, and their snapshots."""
        refs = self.table.metadata.refs
        return {name: refs[name].snapshot_id for name in self.tags if is_daily_tag(name)}

    @property
    def ancestry(self) -> tuple[RetainedSnapshot, ...]:
        """The head, the snapshot before it, and so on, as far as they are retained."""
        by_id = {item.snapshot_id: item for item in self.snapshots}
        found: list[RetainedSnapshot] = []
        at = by_id.get(self.snapshot_id) if self.snapshot_id is not None else None
        while at is not None:
            found.append(at)
            at = by_id.get(at.parent_id) if at.parent_id is not None else None
        return tuple(found)

    def foreign_since(self, snapshot_id: int | None) -> tuple[RetainedSnapshot, ...]:
        """The snapshots of others from the head back to a snapshot before it, or to the newest one of ours.

        What others did before one of ours, that one has taken back: it is made after a comparison of every day.
        """
        newest = itertools.takewhile(lambda item: not item.is_ours and item.snapshot_id != snapshot_id, self.ancestry)
        return tuple(newest)

    def was_rolled_back(self, snapshot_id: int | None) -> bool:
        """Whether a snapshot is retained that is newer than the head.

        Not whether it is before the head: of those in between some may have expired.
        """
        by_id = {item.snapshot_id: item.sequence_number for item in self.snapshots}
        if snapshot_id not in by_id:
            return False
        return self.snapshot_id is None or by_id[self.snapshot_id] < by_id[snapshot_id]

    def has_schema(self, table: TableDefinition) -> bool:
        """Whether the table has the columns of a definition, by id, name, type, order and description."""
        current = self.table.metadata.schema()
        return iceberg_schema(table, current.schema_id) == current

    @cached_property
    def manifests(self) -> tuple[ManifestFile, ...]:
        """Those of the head."""
        head = self.table.metadata.current_snapshot()
        with self._reading():
            return tuple(read_manifests(self.table.io, head.manifest_list)) if head else ()

    def _reading(self) -> AbstractContextManager[None]:
        return translated(f"read the manifests of the Iceberg table {self.identifier}")

    @cached_property
    def day_manifests(self) -> Mapping[date, tuple[ManifestFile, ...]]:
        """The manifests of a single day, by day."""
        found: dict[date, list[ManifestFile]] = {}
        for manifest in self.manifests:
            if (day := day_of(manifest)) is not None:
                found.setdefault(day, []).append(manifest)
        return {day: tuple(manifests) for day, manifests in found.items()}

    @property
    def row_count(self) -> int:
        """Rows of the head, by its summary; by its manifests if somebody made a snapshot that does not say it."""
        head = self.table.metadata.current_snapshot()
        said = head.summary["total-records"] if head and head.summary else None
        return int(said) if said is not None else sum(map(_rows_of, self.manifests))

    @property
    def rows_by_day(self) -> Mapping[date, int]:
        """Rows by day, as the list of manifests counts them; those of manifests of several days are left out."""
        return {day: sum(map(_rows_of, manifests)) for day, manifests in self.day_manifests.items()}

    @cached_property
    def mixed_manifests(self) -> tuple[ManifestFile, ...]:
        """Those of several days, or that delete rows: made by others."""
        return tuple(manifest for manifest in self.manifests if day_of(manifest) is None)

    def days_to_join(self, *, forgets_removed: bool = False) -> tuple[date, ...]:
        """The days whose manifests would fit in fewer; with `forgets_removed` also days that list removed files.

        Commits of other writers keep the bounds of removed files, which may be erased values.
        """
        return tuple(
            sorted(
                day
                for day, manifests in self.day_manifests.items()
                if len(manifests) > math.ceil(sum(item.manifest_length for item in manifests) / LARGEST_MANIFEST)
                or (forgets_removed and any(item.deleted_files_count for item in manifests))
            )
        )

    def listed(self, days: Collection[date]) -> dict[date, tuple[ListedFile, ...]]:
        """The files of some days, from the manifests of these days alone."""
        return {day: tuple(self._files_in(self.day_manifests.get(day, ()))) for day in days}

    def _files_in(self, manifests: Collection[ManifestFile]) -> list[ListedFile]:
        return [listed_file(entry) for manifest in manifests for _, entry in self._entries_of(manifest)]

    def _entries_of(self, manifest: ManifestFile) -> list[tuple[date | None, ManifestEntry]]:
        with self._reading():
            return list(entries_of(self.table.io, manifest))

    def list_everything(self) -> Listing:
        """Reads all manifests, those of others, too."""
        files = {day: self._files_in(manifests) for day, manifests in self.day_manifests.items()}
        mixed: set[date] = set()
        has_foreign_files = False
        for manifest in self.mixed_manifests:
            if manifest.content is not ManifestContent.DATA:
                has_foreign_files = True
                continue
            for day, entry in self._entries_of(manifest):
                if day is None:
                    has_foreign_files = True
                else:
                    mixed.add(day)
                    files.setdefault(day, []).append(listed_file(entry))
        return Listing({day: tuple(found) for day, found in files.items()}, frozenset(mixed), has_foreign_files)

    def needed_files(self, days: Collection[date] | None) -> set[str]:
        """What any retained snapshot is made of, data files of some days or of all, and the table's metadata files."""
        metadata = self.table.metadata
        needed = {self.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
        needed |= {item.statistics_path for item in (*metadata.statistics, *metadata.partition_statistics)}
        return needed | self.files_of_snapshots(days)

    def files_of_snapshots(self, days: Collection[date] | None) -> set[str]:
        """The addresses without which a retained snapshot cannot be read: lists, manifests, data files of some days.

        Manifests that many snapshots share are read once.
        """
        needed: set[str] = set()
        manifests: dict[str, ManifestFile] = {}
        for snapshot in self.table.metadata.snapshots:
            needed.add(snapshot.manifest_list)
            for manifest in read_manifests(self.table.io, snapshot.manifest_list):
                manifests[manifest.manifest_path] = manifest
        for path, manifest in manifests.items():
            needed.add(path)
            day = day_of(manifest)
            if days is None or day is None or day in days:
                needed |= {entry.data_file.file_path for entry in read_entries(self.table.io, manifest)}
        return needed

    def bytes_of_tags(self) -> int | None:
        """Bytes of the data files that only tagged snapshots list; None if there is no tag.

        Of the days of manifests that others do not share, all manifests are read.
        """
        if not self.tags:
            return None
        refs = self.table.metadata.refs
        tagged = {refs[name].snapshot_id for name in self.tags} - {self.snapshot_id}
        by_snapshot: dict[bool, dict[str, ManifestFile]] = {True: {}, False: {}}
        with self._reading():
            for snapshot in self.table.metadata.snapshots:
                for item in read_manifests(self.table.io, snapshot.manifest_list):
                    by_snapshot[snapshot.snapshot_id in tagged][item.manifest_path] = item
            others = by_snapshot[False]
            held = [item for path, item in by_snapshot[True].items() if path not in others]
            days = {day_of(item) for item in held}
            shared = [item for item in others.values() if day_of(item) in days or day_of(item) is None]
            lengths = self._lengths_in(held)
            return sum(lengths[url] for url in lengths.keys() - self._lengths_in(shared).keys())

    def _lengths_in(self, manifests: Collection[ManifestFile]) -> dict[str, int]:
        return {file.url: file.content_length for file in self._files_in(manifests)}

    def mixed_entries(self) -> dict[date, list[ManifestEntry]]:
        """The entries of manifests of several days, by day."""
        found: dict[date, list[ManifestEntry]] = {}
        for manifest in self.mixed_manifests:
            if manifest.content is ManifestContent.DATA:
                for day, entry in self._entries_of(manifest):
                    if day is not None:
                        found.setdefault(day, []).append(entry)
        return found


def _rows_of(manifest: ManifestFile) -> int:
    return (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
