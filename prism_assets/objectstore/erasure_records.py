"""Erasure records: small objects outside the table folders, out of reach of readers and garbage collection."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from prism_assets.domain.erasures.records import ErasureRecord
from prism_assets.domain.errors import ObjectMissing
from prism_assets.domain.files.keys import erasure_records_prefix
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores


def list_records(stores: Stores, lake: Lake, *, after: str | None) -> list[ErasureRecord]:
    """Lists records, the oldest first: all of them, or only names above `after`. Skips objects with other names."""
    prefix = erasure_records_prefix(lake.prefix)
    listed = stores.list(lake.bucket, prefix, after=None if after is None else prefix + after)
    found = (ErasureRecord.parse(item.key.removeprefix(prefix)) for item in listed)
    return sorted(record for record in found if record is not None)


def put_record(stores: Stores, lake: Lake, record: ErasureRecord, columns: Sequence[str]) -> None:
    """Writes a record unless its name exists."""
    document = {
        "folder": record.folder,
        "digest": record.digest,
        "create_time": record.create_time.isoformat(),
        "columns": list(columns),
        "note": "rows were erased: a database that lacks this erasure does nothing with the table; do not delete",
    }
    stores.put_new(lake.bucket, _key(lake, record), json.dumps(document, indent=2).encode() + b"\n")


def read_columns(stores: Stores, lake: Lake, record: ErasureRecord) -> tuple[str, ...]:
    """Returns the names of the erased columns, to help a person. Empty if the object does not name them."""
    with suppress(ObjectMissing, ValueError, TypeError, KeyError):
        return tuple(map(str, json.loads(stores.get(lake.bucket, _key(lake, record)))["columns"]))
    return ()


def delete_record(stores: Stores, lake: Lake, record: ErasureRecord) -> None:
    """Deletes a record if it exists."""
    stores.delete(lake.bucket, [_key(lake, record)])


def _key(lake: Lake, record: ErasureRecord) -> str:
    return erasure_records_prefix(lake.prefix) + record.name
