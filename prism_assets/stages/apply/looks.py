"""Checks the places of new streams once, so that `apply` reports a wrong URL.

Topics of Kafka are left to the worker, whose environment alone has the connection.

The check decides nothing: a missing or silent bucket is reported, and the tables are applied.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import SequenceMatcher
from itertools import islice

from prism_assets.domain.errors import MissingBucket, PrismError
from prism_assets.domain.streams.intake import describe_left_out, reason_left_out
from prism_assets.domain.streams.stream import Stream
from prism_assets.domain.tables.changes import AddStream, ChangeStream
from prism_assets.domain.text import counted
from prism_assets.objectstore.stores import Stores
from prism_assets.stages.apply.plan import ApplyPlan

_PAGE = 1_000
_AT_ONCE = 8
_NEIGHBOURS = 3


def look_at_streams(stores: Stores, plan: ApplyPlan) -> tuple[str, ...]:
    """Returns a sentence about each new or changed stream without a readable object. Raises nothing."""
    streams = [(str(planned.name), stream) for planned in plan.tables for stream in _begun(planned.changes)]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda pair: _look(stores, pair[1]), streams))
    return tuple(
        f"stream {stream.name} of {table}: {sentence}"
        for (table, stream), sentence in zip(streams, found, strict=True)
        if sentence is not None
    )


def _begun(changes: Sequence[object]) -> Iterator[Stream]:
    for change in changes:
        if isinstance(change, AddStream | ChangeStream):
            stream = change.stream
            if stream.enabled and not stream.discard and stream.topic is None:
                yield stream


def _look(stores: Stores, stream: Stream) -> str | None:
    try:
        return _missing_objects(stores, stream)
    except MissingBucket as error:
        return f"{error}; the stream is in force all the same, and finds nothing until then"
    except PrismError as error:
        return f"{stream.url} was not looked at, as the store did not answer: {error}"


def _missing_objects(stores: Stores, stream: Stream) -> str | None:
    """Checks the first page of a stream. One readable object is enough."""
    page = list(islice(stores.list(stream.bucket, stream.key_prefix), _PAGE))
    reasons = [reason_left_out(stream, item.key, item.content_length) for item in page]
    if not all(reasons):
        return None
    if left_out := describe_left_out(Counter(reason for reason in reasons if reason)):
        return f"no object to read at {stream.url}: {left_out}"
    return f"0 objects at {stream.url}; {_neighbours(stores, stream)}"


def _neighbours(stores: Stores, stream: Stream) -> str:
    """Returns the folders beside the stream's own, similar names first, with their numbers of objects."""
    names = stream.key_prefix.rstrip("/").split("/")
    for depth in reversed(range(len(names))):
        parent = "".join(f"{name}/" for name in names[:depth])
        folders = stores.list_folders(stream.bucket, parent, most=_PAGE)
        if folders:
            near = _nearest(folders, names[depth])
            listed = ", ".join(
                f"{parent}{name}/ with {_count(stores, stream.bucket, f'{parent}{name}/')}" for name in near
            )
            more = f" and {counted(len(folders) - len(near), 'more folder')}" if len(folders) > len(near) else ""
            verb = "lies" if len(folders) == 1 else "lie"
            return f"beside it {verb} {listed}{more}"
    return f"there is no folder in bucket {stream.bucket}"


def _nearest(folders: Sequence[str], wanted: str) -> Sequence[str]:
    return sorted(folders, key=lambda name: -SequenceMatcher(None, name, wanted).ratio())[:_NEIGHBOURS]


def _count(stores: Stores, bucket: str, prefix: str) -> str:
    found = sum(1 for _ in islice(stores.list(bucket, prefix), _PAGE))
    return f"{found:,}{' or more' if found == _PAGE else ''}"
