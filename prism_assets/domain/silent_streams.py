"""Streams that find nothing: a bucket that is gone, a prefix with a slip, or objects that are all left out.

Status, doctor, the check `silent_streams` and the end of a run say the sentences that are made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from prism_assets.domain.intake import LeftOut, describe_left_out

PATIENCE = timedelta(hours=1)
"""How long a stream may find nothing before a person has to look at its URL: its writer may begin later."""


@dataclass(frozen=True, kw_only=True)
class ListedStream:
    """The results of all listings of a stream.

    `first_time` is when it was listed first, `found_any` whether a listing or a message ever named an object to read.
    `is_whole` says whether all of it was listed once. `last_error` is why it cannot be listed, since `error_time`.
    """

    table_id: int
    stream: str
    url: str
    first_time: datetime
    is_whole: bool
    found_any: bool
    left_out: Mapping[LeftOut, int]
    error_time: datetime | None
    last_error: str | None


@dataclass(frozen=True, kw_only=True)
class SilentStream:
    """A stream from which nothing comes: since when, why, and what to do."""

    table_id: int
    stream: str
    since: datetime
    sentence: str
    for_a_person: bool


def silent_streams(listed: Iterable[ListedStream], now: datetime) -> list[SilentStream]:
    """Returns the streams from which nothing comes.

    A stream that cannot be listed waits for a person at once, one that found nothing after an hour.
    """
    return [found for item in listed if (found := _silence_of(item, now))]


def _silence_of(item: ListedStream, now: datetime) -> SilentStream | None:
    if item.last_error is not None and item.error_time is not None:
        sentence = (
            f"stream {item.stream} cannot be listed at {item.url} since {_minute(item.error_time)}: {item.last_error}. "
            "What it registered before is converted; the next listing goes on when this is mended"
        )
        return _silent(item, item.error_time, sentence, for_a_person=True)
    if item.found_any or not item.is_whole:
        return None
    left_out = describe_left_out(item.left_out)
    sentence = (
        f"stream {item.stream} has found no object to read at {item.url} since {_minute(item.first_time)}"
        f"{f', {left_out}' if left_out else ''}: correct its url in the table file, "
        f"{'or its include and exclude, ' if left_out else ''}or say `enabled: false` until objects come"
    )
    return _silent(item, item.first_time, sentence, for_a_person=now - item.first_time >= PATIENCE)


def objects_left_out(streams: Iterable[ListedStream]) -> Iterator[str]:
    """Yields a sentence about each stream of whose objects some are not read."""
    for item in streams:
        if left_out := describe_left_out(item.left_out):
            yield f"stream {item.stream}: {left_out}; `include` and `exclude` in the table file say which are read"


def _silent(item: ListedStream, since: datetime, sentence: str, *, for_a_person: bool) -> SilentStream:
    return SilentStream(
        table_id=item.table_id, stream=item.stream, since=since, sentence=sentence, for_a_person=for_a_person
    )


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}Z"
