"""An Iceberg table as of one load: its head, its snapshots, and its files of each day."""

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

from prism_assets.domain.iceberg.snapshots import ListedFile, RetainedSnapshot, is_daily_tag
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.publishers.iceberg.avro import read_entries, read_manifests
from prism_assets.publishers.iceberg.errors import translated
from prism_assets.publishers.iceberg.manifests import LARGEST_MANIFEST, day_of, entries_of, listed_file
from prism_assets.publishers.iceberg.schema import MARK, iceberg_schema


@dataclass(frozen=True)
class Listing:
    """All files of a table by day."""

    files: Mapping[date, tuple[ListedFile, ...]]
    mixed: frozenset[date]
    """Days with entries in manifests of several days."""
    has_foreign_files: bool
    """Whether the table lists files without a day, or delete files. Our commits write neither."""


class LoadedTable:
    """The catalog's answer for one table. Reads manifests on demand and changes nothing."""

    def __init__(self, table: Table, mark: str) -> None:
        self.table = table
        self._mark = mark

    @property
    def identifier(self) -> str:
        """`database.table`."""
        return ".".join(self.table.name())

    @property
    def table_uuid(self) -> str:
        """Never changes. Another UUID under this name means another table."""
        return str(self.table.metadata.table_uuid)

    @property
    def metadata_location(self) -> str:
        """The metadata file named by the catalog."""
        return self.table.metadata_location

    @property
    def snapshot_id(self) -> int | None:
        """The head, or None before the first commit."""
        return self.table.metadata.current_snapshot_id

    @property
    def last_sequence_number(self) -> int:
        """The highest sequence number of any snapshot, expired ones included."""
        metadata = self.table.metadata
        return 0 if isinstance(metadata, TableMetadataV1) else metadata.last_sequence_number

    @property
    def is_ours(self) -> bool:
        """Whether this installation made the table."""
        return self.table.metadata.properties.get(MARK) == self._mark

    @cached_property
    def snapshots(self) -> tuple[RetainedSnapshot, ...]:
        """All retained snapshots."""
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
        """Snapshots of tags and of foreign branches. The head may be among them."""
        return frozenset(ref.snapshot_id for name, ref in self.table.metadata.refs.items() if name != MAIN_BRANCH)

    @property
    def tags(self) -> frozenset[str]:
        """The names of all tags."""
        refs = self.table.metadata.refs
        return frozenset(name for name, ref in refs.items() if ref.snapshot_ref_type is SnapshotRefType.TAG)

    @property
    def own_tags(self) -> dict[str, int]:
        """The daily tags and their snapshots."""
        refs = self.table.metadata.refs
        return {name: refs[name].snapshot_id for name in self.tags if is_daily_tag(name)}

    @property
    def ancestry(self) -> tuple[RetainedSnapshot, ...]:
        """The head, its parent, and so on through all retained snapshots."""
        by_id = {item.snapshot_id: item for item in self.snapshots}
        found: list[RetainedSnapshot] = []
        at = by_id.get(self.snapshot_id) if self.snapshot_id is not None else None
        while at is not None:
            found.append(at)
            at = by_id.get(at.parent_id) if at.parent_id is not None else None
        return tuple(found)

    def foreign_since(self, snapshot_id: int | None) -> tuple[RetainedSnapshot, ...]:
        """Returns foreign snapshots from the head back to the given snapshot, or to our newest one.

        Our own snapshot has already undone older foreign changes, because each one follows a comparison of every day.
        """
        newest = itertools.takewhile(lambda item: not item.is_ours and item.snapshot_id != snapshot_id, self.ancestry)
        return tuple(newest)

    def was_rolled_back(self, snapshot_id: int | None) -> bool:
        """Whether the given snapshot is retained and newer than the head.

        Ancestry cannot answer this, because snapshots in between may have expired.
        """
        by_id = {item.snapshot_id: item.sequence_number for item in self.snapshots}
        if snapshot_id not in by_id:
            return False
        return self.snapshot_id is None or by_id[self.snapshot_id] < by_id[snapshot_id]

    def has_schema(self, table: TableDefinition) -> bool:
        """Whether the table's columns equal the definition's in id, name, type, order and description."""
        current = self.table.metadata.schema()
        return iceberg_schema(table, current.schema_id) == current

    @cached_property
    def manifests(self) -> tuple[ManifestFile, ...]:
        """The manifests of the head."""
        head = self.table.metadata.current_snapshot()
        with self._reading():
            return tuple(read_manifests(self.table.io, head.manifest_list)) if head else ()

    def _reading(self) -> AbstractContextManager[None]:
        return translated(f"read the manifests of the Iceberg table {self.identifier}")

    @cached_property
    def day_manifests(self) -> Mapping[date, tuple[ManifestFile, ...]]:
        """Manifests with files of a single day, by day."""
        found: dict[date, list[ManifestFile]] = {}
        for manifest in self.manifests:
            if (day := day_of(manifest)) is not None:
                found.setdefault(day, []).append(manifest)
        return {day: tuple(manifests) for day, manifests in found.items()}

    @property
    def row_count(self) -> int:
        """Rows of the head by its summary. Falls back to the manifests, as foreign snapshots may lack the count."""
        head = self.table.metadata.current_snapshot()
        total = head.summary["total-records"] if head and head.summary else None
        return int(total) if total is not None else sum(map(_rows_of, self.manifests))

    @property
    def rows_by_day(self) -> Mapping[date, int]:
        """Rows by day from the manifest list, without manifests of several days."""
        return {day: sum(map(_rows_of, manifests)) for day, manifests in self.day_manifests.items()}

    @cached_property
    def mixed_manifests(self) -> tuple[ManifestFile, ...]:
        """Manifests of several days, and delete manifests. Only other writers make them."""
        return tuple(manifest for manifest in self.manifests if day_of(manifest) is None)

    def days_to_join(self, *, forgets_removed: bool = False) -> tuple[date, ...]:
        """Returns days whose manifests would fit into fewer. With `forgets_removed`, also days that list removed files.

        Commits of other writers keep the bounds of removed files, and a bound may be an erased value.
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
        """Returns the files of some days. Reads only manifests of these days."""
        return {day: tuple(self._files_in(self.day_manifests.get(day, ()))) for day in days}

    def _files_in(self, manifests: Collection[ManifestFile]) -> list[ListedFile]:
        return [listed_file(entry) for manifest in manifests for _, entry in self._entries_of(manifest)]

    def _entries_of(self, manifest: ManifestFile) -> list[tuple[date | None, ManifestEntry]]:
        with self._reading():
            return list(entries_of(self.table.io, manifest))

    def list_everything(self) -> Listing:
        """Reads all manifests, foreign ones included."""
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
        """Returns the addresses of the table's metadata files and of everything retained snapshots need.

        `days` limits data files to these days.
        """
        metadata = self.table.metadata
        needed = {self.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
        needed |= {item.statistics_path for item in (*metadata.statistics, *metadata.partition_statistics)}
        return needed | self.files_of_snapshots(days)

    def files_of_snapshots(self, days: Collection[date] | None) -> set[str]:
        """Returns the addresses retained snapshots need: manifest lists, manifests, and data files of `days` or of all
        days.

        Reads each shared manifest once.
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
        """Returns the bytes of data files listed only by tagged snapshots, or None without a tag.

        Tagged snapshots hold some manifests alone. For the days of those, all manifests of the other snapshots are
        read, too.
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
            untagged = by_snapshot[False]
            held = [item for path, item in by_snapshot[True].items() if path not in untagged]
            days = {day_of(item) for item in held}
            shared = [item for item in untagged.values() if day_of(item) in days or day_of(item) is None]
            lengths = self._lengths_in(held)
            return sum(lengths[url] for url in lengths.keys() - self._lengths_in(shared).keys())

    def _lengths_in(self, manifests: Collection[ManifestFile]) -> dict[str, int]:
        return {file.url: file.content_length for file in self._files_in(manifests)}

    def mixed_entries(self) -> dict[date, list[ManifestEntry]]:
        """Returns the entries of all manifests that list several days, by day."""
        found: dict[date, list[ManifestEntry]] = {}
        for manifest in self.mixed_manifests:
            if manifest.content is ManifestContent.DATA:
                for day, entry in self._entries_of(manifest):
                    if day is not None:
                        found.setdefault(day, []).append(entry)
        return found


def _rows_of(manifest: ManifestFile) -> int:
    return (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
