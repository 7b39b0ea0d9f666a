"""Invariants of every snapshot retained by an Iceberg table, read like any client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from pyiceberg.manifest import DataFileContent
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot


def listed(table: Table, snapshot: Snapshot | None = None) -> Counter[tuple[str, int]]:
    """Returns the files of a snapshot, or of the head, as (address, bytes), with their counts."""
    chosen = snapshot or table.current_snapshot()
    found: Counter[tuple[str, int]] = Counter()
    for manifest in chosen.manifests(table.io) if chosen else ():
        for entry in manifest.fetch_manifest_entry(table.io):
            assert entry.data_file.content is DataFileContent.DATA, f"{entry.data_file.file_path} deletes rows"
            found[entry.data_file.file_path, entry.data_file.file_size_in_bytes] += 1
    return found


def faults(table: Table, buckets: Path) -> Iterator[str]:
    """Yields files of retained snapshots that are listed twice, missing, or of another length than listed."""
    for snapshot in table.metadata.snapshots:
        files = listed(table, snapshot)
        paths = Counter(path for path, _ in files.elements())
        yield from (f"snapshot {snapshot.snapshot_id} lists {path} twice" for path in paths if paths[path] > 1)
        for path, length in files:
            file = buckets / path.removeprefix("s3://")
            if not file.exists():
                yield f"snapshot {snapshot.snapshot_id} lists {path}, which is missing"
            elif file.stat().st_size != length:
                yield f"snapshot {snapshot.snapshot_id} says {length} bytes of {path}, not {file.stat().st_size}"
