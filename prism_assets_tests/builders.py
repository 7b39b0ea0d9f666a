"""Builders of table files, lines and objects. A test states only its own facts."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

from prism_assets.domain.files.data_file import MergedRange, SmallObject

_IDS = itertools.count(1)


def utc(text: str) -> datetime:
    """`2026-03-01T12:00` as an instant in UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def a_table(
    name: str = "log.events",
    *,
    timezone: str = "UTC",
    columns: Sequence[str] = (),
    merge: str = "{interval: 3600}",
    bucket: str = "staging",
    accept: str = "{from: arrival}",
    iceberg: str = "",
    stream: str = "",
) -> str:
    """Returns a table file with the columns time, id and the given ones.

    `stream` has the keys of the stream, such as `topic: app`. Without it the stream reads a prefix of the bucket.

    Objects of tests are written at the real time and have rows of another time, the one given by `--now`.
    """
    schema, table = name.split(".")
    more = "".join(f"  - {column}\n" for column in columns)
    stream = stream or f'url: "s3://{bucket}/{table}/"'
    return (
        f"schema: {schema}\ntable: {table}\ndescription: a test table\nowner: team:test\n"
        f"streams:\n  - {{name: {table}, {stream}}}\n"
        f"partition: {{column: time, timezone: {timezone}}}\n"
        "columns:\n  - {name: time, type: timestamp, required: true}\n  - {name: id, type: bigint}\n"
        f"{more}merge: {merge}\naccept: {accept}\n" + (f"iceberg: {iceberg}\n" if iceberg else "")
    )


def some_rows(
    count: int, start: datetime, *, every: timedelta = timedelta(seconds=1), **more: Any
) -> list[dict[str, Any]]:
    """Returns rows with unique ids, from `start` on, one `every` so often."""
    return [
        {"time": (start + index * every).isoformat().replace("+00:00", "Z"), "id": next(_IDS), **more}
        for index in range(count)
    ]


def as_lines(rows: Iterable[Any]) -> bytes:
    """JSON Lines, final newline included."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def zipped(body: bytes) -> bytes:
    """Returns a gzip file, the same one for the same body."""
    return gzip.compress(body, mtime=0)


def a_small_object(object_id: int = 0, **more: Any) -> SmallObject:
    """Returns a small object of ten rows in a hundred bytes, with the given fields."""
    noon = utc("2026-03-01T12:00")
    fields: dict[str, Any] = {
        "bucket": "lake",
        "key": f"k{object_id}",
        "content_length": 100,
        "row_count": 10,
        "fingerprint": 7,
        "min_time": noon,
        "max_time": noon,
        "date": date(2026, 3, 1),
        "staging_object_id": 1,
        "generation": 0,
        "delayed": False,
        "upload_start_time": noon,
    }
    return SmallObject(object_id=object_id, **{**fields, **more})


def a_range(
    lower: int, upper: int, content_length: int = 100, row_count: int = 10, fingerprint: int = 7, **more: Any
) -> MergedRange:
    """The merged object of the small objects with lower < id <= upper."""
    fields: dict[str, Any] = {
        "bucket": "lake",
        "key": f"part-{lower}-{upper}",
        "content_length": content_length,
        "row_count": row_count,
        "fingerprint": fingerprint,
    }
    return MergedRange(lower_bound=lower, upper_bound=upper, **{**fields, **more})
