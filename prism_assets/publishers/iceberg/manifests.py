"""Writes the manifests of a snapshot. Each manifest holds one day, so a commit touches only manifests of changed days.

With all days in one manifest, replacing a thousand of a hundred thousand files takes a minute; this way it takes less
than a second. PyIceberg's producers support neither this layout nor commits by difference.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Literal

from pyiceberg.avro.file import AvroOutputFile
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO
from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestListWriter,
    ManifestListWriterV2,
    ManifestWriterV2,
)
from pyiceberg.manifest import (
    DataFile as ListedDataFile,
)
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, PrimitiveType, TimestamptzType

from prism_assets.domain.files.data_file import DataFile
from prism_assets.domain.iceberg.snapshots import DayChange, ListedFile
from prism_assets.publishers.iceberg.avro import Layout, Output, list_layout, manifest_layout, read_entries
from prism_assets.publishers.iceberg.schema import DAY_FIELD, SPEC

JOINED_AT = 8
"""With this many manifests of one day, the smaller ones are joined."""
LARGEST_MANIFEST = 8 << 20
_CODEC: Literal["deflate"] = "deflate"
_EPOCH = date(1970, 1, 1)
_BOUNDS = [
    place for place, field in enumerate(DATA_FILE_TYPE[2].fields) if field.name in ("lower_bounds", "upper_bounds")
]
_Change = tuple[ManifestEntryStatus, ManifestEntry]


def day_of(manifest: ManifestFile) -> date | None:
    """Returns the day of all files in a data manifest. None for several days, or for another partition spec."""
    summaries = manifest.partitions or []
    if manifest.content is not ManifestContent.DATA or manifest.partition_spec_id != SPEC.spec_id:
        return None
    if len(summaries) != 1 or summaries[0].contains_null or summaries[0].lower_bound is None:
        return None
    if summaries[0].lower_bound != summaries[0].upper_bound:
        return None
    return _EPOCH + timedelta(days=int.from_bytes(summaries[0].lower_bound, "little", signed=True))


def entries_of(files: FileIO, manifest: ManifestFile) -> Iterator[tuple[date | None, ManifestEntry]]:
    """Yields the files of a data manifest with their days. The day is None under another partition spec."""
    for entry in read_entries(files, manifest):
        ours = manifest.partition_spec_id == SPEC.spec_id and entry.data_file.partition[0] is not None
        yield (_EPOCH + timedelta(days=entry.data_file.partition[0]) if ours else None), entry


def listed_file(entry: ManifestEntry) -> ListedFile:
    """Returns the compared facts of an entry's file."""
    file = entry.data_file
    return ListedFile(url=file.file_path, content_length=file.file_size_in_bytes, row_count=file.record_count)


class ManifestProducer:
    """Writes the manifests of one new snapshot."""

    def __init__(self, files: FileIO, schema: Schema, folder: str, snapshot_id: int) -> None:
        self._files = files
        self._schema = schema
        self._types = {number: field.field_type for number, field in index_by_id(schema).items()}
        self._folder = folder
        self._snapshot_id = snapshot_id

    def manifests_of(
        self, change: DayChange, present: Sequence[ManifestFile], mixed: Sequence[ManifestEntry]
    ) -> list[ManifestFile]:
        """Returns a day's manifests after a change: unchanged ones, and new ones for added and rewritten entries.

        `present` are the day's own manifests. `mixed` are the day's entries in manifests of several days; the commit
        drops those manifests. Only manifests with removed files are rewritten, and the smallest ones if a day has many.
        So an entry is rewritten only a few times in all.
        """
        added = [(ManifestEntryStatus.ADDED, self._entry(change.date, file)) for file in change.added]
        kept: list[ManifestFile] = list(present)
        before: list[ManifestEntry] = list(mixed)
        if change.removed:
            removed = set(change.removed)
            for manifest in present:
                entries = read_entries(self._files, manifest)
                if any(listed_file(entry) in removed for entry in entries):
                    kept.remove(manifest)
                    before += entries
        if change.rewrites:
            joined = kept
        else:
            joined = _smallest(kept, len(before) + len(added)) if len(kept) + 1 >= JOINED_AT else []
        before += [entry for manifest in joined for entry in read_entries(self._files, manifest)]
        kept = [manifest for manifest in kept if manifest not in joined]
        return [*kept, *self._write([*_kept_and_removed(before, change.removed), *added])]

    def write_list(self, manifests: Sequence[ManifestFile], parent_id: int | None, sequence_number: int) -> str:
        """Writes the manifest list and returns its address."""
        output = self._files.new_output(f"{self._folder}/snap-{self._snapshot_id}-0-{uuid.uuid4()}.avro")
        with _ListWriter(output, self._snapshot_id, parent_id, sequence_number, _CODEC) as writer:
            writer.add_manifests(list(manifests))
        return output.location

    def _write(self, changes: Sequence[_Change]) -> list[ManifestFile]:
        """Writes entries into manifests of about 8 MB each, usually one."""
        written: list[ManifestFile] = []
        rest = iter(changes)
        first = next(rest, None)
        while first is not None:
            file = self._files.new_output(f"{self._folder}/{uuid.uuid4()}-m0.avro")
            writer = _ManifestWriter(SPEC, self._schema, file, self._snapshot_id, _CODEC)
            with writer:
                _put(writer, first)
                first = None
                for change in rest:
                    if writer.tell() >= LARGEST_MANIFEST:
                        first = change
                        break
                    _put(writer, change)
            written.append(writer.to_manifest_file())
        return written

    def _entry(self, day: date, file: DataFile) -> ManifestEntry:
        bounds = [item for item in file.metrics if item.column_id in self._types]
        listed = ListedDataFile.from_args(
            content=DataFileContent.DATA,
            file_path=file.url,
            file_format=FileFormat.PARQUET,
            partition=Record((day - _EPOCH).days),
            record_count=file.row_count,
            file_size_in_bytes=file.content_length,
            value_counts={item.column_id: file.row_count for item in bounds},
            null_value_counts={item.column_id: item.nulls for item in bounds if item.nulls is not None},
            lower_bounds=self._bounds((item.column_id, item.lower) for item in bounds),
            upper_bounds=self._bounds((item.column_id, item.upper) for item in bounds),
        )
        listed.spec_id = SPEC.spec_id
        return ManifestEntry.from_args(
            status=ManifestEntryStatus.ADDED, snapshot_id=self._snapshot_id, sequence_number=None, data_file=listed
        )

    def _bounds(self, values: Iterable[tuple[int, Any]]) -> dict[int, bytes]:
        return {column_id: _encoded(self._types[column_id], value) for column_id, value in values if value is not None}


def _encoded(kind: Any, value: Any) -> bytes:
    """Encodes a bound for Iceberg. Column metrics hold times in milliseconds, and decimals as text."""
    assert isinstance(kind, PrimitiveType)
    if isinstance(kind, TimestamptzType):
        return to_bytes(kind, value * 1_000)
    return to_bytes(kind, Decimal(value) if isinstance(kind, DecimalType) else value)


def _smallest(manifests: Sequence[ManifestFile], entries: int) -> list[ManifestFile]:
    """Chooses manifests to join with `entries` new entries: a minimum number, then each one not much bigger than the
    rest.
    """
    ordered = sorted(manifests, key=_live_entries)
    chosen: list[ManifestFile] = []
    for manifest in ordered:
        if len(chosen) >= JOINED_AT // 2 and _live_entries(manifest) > 2 * entries:
            break
        chosen.append(manifest)
        entries += _live_entries(manifest)
    return chosen


def _live_entries(manifest: ManifestFile) -> int:
    return (manifest.added_files_count or 0) + (manifest.existing_files_count or 0)


def _kept_and_removed(entries: Sequence[ManifestEntry], removed: Sequence[ListedFile]) -> Iterator[_Change]:
    left = Counter(removed)
    for entry in entries:
        file = listed_file(entry)
        going = left[file] > 0
        left[file] -= going
        if going:
            yield ManifestEntryStatus.DELETED, _without_bounds(entry)
        else:
            yield ManifestEntryStatus.EXISTING, entry


def _without_bounds(entry: ManifestEntry) -> ManifestEntry:
    """Removes the bounds from a removed file's entry. No reader prunes these files; a bound may be an erased value."""
    for place in _BOUNDS:
        entry.data_file[place] = None
    return entry


def _put(writer: ManifestWriterV2, change: _Change) -> None:
    status, entry = change
    if status is ManifestEntryStatus.ADDED:
        writer.add(entry)
    elif status is ManifestEntryStatus.EXISTING:
        writer.existing(entry)
    else:
        writer.delete(entry)


class _ManifestWriter(ManifestWriterV2):
    """Writes with the cached layout, and many entries per block."""

    def new_writer(self) -> AvroOutputFile[ManifestEntry]:
        return Output(self._output_file, _layout(), self._meta)

    def tell(self) -> int:
        assert isinstance(self._writer, Output)
        return self._writer.bytes_so_far


@cache
def _layout() -> Layout:
    """Returns one layout for all tables. It depends only on the day column."""
    return manifest_layout(SPEC.partition_type(Schema(DAY_FIELD)))


class _ListWriter(ManifestListWriterV2):
    """Writes with the cached layout."""

    def __enter__(self) -> ManifestListWriter:
        self._writer = Output(self._output_file, list_layout(), self._meta)
        self._writer.__enter__()
        return self
