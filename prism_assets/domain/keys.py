"""All S3 keys of the lake. Keys are built here and nowhere else."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import date, datetime

from prism_assets.domain.names import TableName


def table_hash(name: TableName) -> str:
    """First two bytes of the MD5 of the physical `schema.table` as four hex digits; spreads tables over key space."""
    return hashlib.md5(name.physical.encode(), usedforsecurity=False).hexdigest()[:4]


def marker_key(prefix: str) -> str:
    """The object that says which database a lake belongs to; beside the folders of tables, so no reader lists it."""
    return f"{prefix}prism-installation.json"


@dataclass(frozen=True)
class TableKeys:
    """Builds the keys of one table. `prefix` is the lake's prefix in its bucket, empty or ending with `/`."""

    bucket: str
    prefix: str
    name: TableName

    @property
    def root(self) -> str:
        """`{prefix}{hash}.{physical_schema}.{physical_table}/`."""
        return f"{self.prefix}{table_hash(self.name)}.{self.name.physical}/"

    def live_prefix(self, day: date) -> str:
        """The folder that readers of an open partition list."""
        return f"{self.root}live/dt={day.isoformat()}/"

    def delayed_prefix(self, day: date) -> str:
        """The folder of small objects that came after their partition was marked for closing."""
        return f"{self.root}delayed/dt={day.isoformat()}/"

    def merged_prefix(self, day: date) -> str:
        """The folder of merged objects and manifests."""
        return f"{self.root}merged/dt={day.isoformat()}/"

    @property
    def all_merged_prefix(self) -> str:
        """The folder of the merged objects and manifests of all days."""
        return f"{self.root}merged/"

    @property
    def iceberg_prefix(self) -> str:
        """The folder of what only readers of Iceberg read: metadata, and in `data/` what strangers write."""
        return f"{self.root}iceberg/"

    def small_object(self, day: date, staging_object_id: int, *, delayed: bool, generation: int = 0) -> str:
        """The Parquet object that holds the rows of one staging object for one event date.

        An object that was begun anew writes under keys of its own, told by its generation: what may still come of the
        start before, a late upload or its removal, touches other keys.
        """
        folder = self.delayed_prefix(day) if delayed else self.live_prefix(day)
        return f"{folder}{_start(staging_object_id, generation)}.parquet"

    def merged_object(self, day: date, lower_bound: int, upper_bound: int, revision: int = 0) -> str:
        """The merged object of the small objects with lower_bound < id <= upper_bound.

        A revision above 0 tells it from the one of the same rows that it was rewritten from.
        """
        again = f"-r{revision}" if revision else ""
        return f"{self.merged_prefix(day)}part-{lower_bound:019d}-{upper_bound:019d}{again}.parquet"

    def manifest(self, day: date, upper_bound: int, published_object_id: int, revision: int = 0) -> str:
        """The manifest of the ranges up to upper_bound and the small objects above it up to published_object_id.

        A revision above 0 tells it from the one that named the same objects with lengths from before a repair.
        """
        small = f"-{published_object_id:019d}" if published_object_id > upper_bound else ""
        again = f"-r{revision}" if revision else ""
        return f"{self.merged_prefix(day)}manifest-{upper_bound:019d}{small}{again}.json"

    def quarantine(self, arrival: datetime, staging_object_id: int, generation: int = 0) -> str:
        """The lines of one staging object that were set aside, by day of arrival (UTC)."""
        return f"{self.root}quarantine/dt={arrival:%Y-%m-%d}/{_start(staging_object_id, generation)}.jsonl.gz"


def _start(staging_object_id: int, generation: int) -> str:
    """The name of one start of a staging object."""
    return f"prism-{staging_object_id:019d}" + (f"-g{generation}" if generation else "")


_SMALL_OBJECT = re.compile(r".*/prism-(\d{19})(?:-g(\d+))?\.parquet")


def parse_small_object(key: str) -> tuple[int, int] | None:
    """The staging object id and the generation that a key of a small object names; None for any other key."""
    match = _SMALL_OBJECT.fullmatch(key)
    return (int(match[1]), int(match[2] or 0)) if match else None
