"""Registers new objects under the prefixes of the streams, from messages and listings. Repetition registers nothing
twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone

from prism_assets.domain.errors import PrismError, TransientError
from prism_assets.domain.streams.intake import LeftOut, describe_left_out, reason_left_out
from prism_assets.domain.text import counted
from prism_assets.failpoints import failpoint
from prism_assets.metadata import clock, locks
from prism_assets.metadata.intake import staging_objects, stream_scans, streams
from prism_assets.metadata.intake.staging_objects import FoundObject
from prism_assets.metadata.intake.stream_scans import Scan
from prism_assets.metadata.intake.streams import KnownStream
from prism_assets.metadata.records import watermark
from prism_assets.objectstore.config import ObjectInfo
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import NEVER, Deadline
from prism_assets.stages.discover.messages import ReceiveReport, run_receive
from prism_assets.stages.discover.overlap import Overlap
from prism_assets.stages.discover.registering import UNREADABLE, is_readable, storable, update_old

_PAGE = 1_000
_LISTINGS = 8
"""Streams listed at once. docs/operate.md names the number.

A listing mostly waits for the store: with 40 ms a request, 300 streams take 1.5 s. The client of S3 keeps ten
connections. A page of keys takes less than a megabyte. No listing holds a session of PostgreSQL while it waits, so the
`MOST_SESSIONS` of a process are enough.
"""
_SMALL_STREAM = 10_000
"""Streams with fewer objects are always listed completely, in ten requests."""
_LONG_AGO = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, kw_only=True)
class StreamScan:
    """The result of one listing. The next turn of the stream continues an unfinished one after its last key."""

    table_id: int
    stream_name: str
    listed: int
    new: int
    unknown: int
    full: bool
    unfinished: bool = False
    left_out: Mapping[LeftOut, int] = field(default_factory=dict)
    """Counts of objects that are not read, by reason."""
    error: str | None = None
    transient: bool = False
    """The cause of the error may pass by itself."""


@dataclass(frozen=True, kw_only=True)
class DiscoverReport:
    """Results of messages and listings."""

    scans: tuple[StreamScan, ...]
    received: ReceiveReport | None = None
    left: int = 0
    """Due streams left out because of the deadline."""

    @property
    def new(self) -> int:
        """Number of new objects."""
        return sum(scan.new for scan in self.scans) + (self.received.registered if self.received else 0)

    @property
    def left_out(self) -> Mapping[LeftOut, int]:
        """Objects left out by listings and messages, by reason."""
        counts = sum((Counter(scan.left_out) for scan in self.scans), Counter[LeftOut]())
        return counts + Counter(self.received.left_out) if self.received else counts

    @property
    def errors(self) -> tuple[str, ...]:
        """Errors, one sentence per queue or stream."""
        queues = self.received.errors if self.received else ()
        return (*queues, *(scan.error for scan in self.scans if scan.error))

    def describe(self) -> str:
        """Returns the figures in a sentence."""
        new, listed = sum(scan.new for scan in self.scans), sum(scan.listed for scan in self.scans)
        unknown = sum(scan.unknown for scan in self.scans)
        parts = [self.received.describe()] if self.received else []
        parts.append(f"{new} new of {counted(listed, 'object')} in {counted(len(self.scans), 'stream')} listed")
        if left_out := describe_left_out(self.left_out):
            parts.append(left_out)
        if unknown:
            parts.append(f"{unknown} with unreadable keys")
        if later := self.left + sum(scan.unfinished for scan in self.scans):
            parts.append(f"{counted(later, 'stream')} to go on with")
        return "; ".join(parts)


def run_discover(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None = None,
    deadline: Deadline = NEVER,
    only_due: bool = False,
    left_to_others: Collection[int] = (),
) -> DiscoverReport:
    """Receives from the queues, then lists the streams, including stopped and discarded ones.

    A failing one does not stop the others; the report has its error. All tables share the queues, so `names` restricts
    the run to listings. `only_due` skips streams listed within PRISM_SQS_LISTING_SECONDS, if all queues answer. Nothing
    starts after the deadline. The least recently listed streams come first, so the next call continues here. Streams of
    tables `left_to_others`, by id, are not listed.
    """
    context.check_lake()
    received = None
    if context.queues and names is None:
        received = run_receive(context, now=now, deadline=deadline.half())
    queues_answer = received is not None and not received.errors
    every = context.settings.sqs_listing_seconds if only_due and queues_answer else 0.0
    listed = run_listings(
        context, now=now, names=names, every_seconds=every, deadline=deadline, left_to_others=left_to_others
    )
    return replace(listed, received=received)


def run_listings(
    context: StageContext,
    *,
    now: datetime,
    names: Collection[str] | None,
    every_seconds: float = 0.0,
    deadline: Deadline = NEVER,
    left_to_others: Collection[int] = (),
) -> DiscoverReport:
    """Lists the streams of the named tables, or of all, but none listed within `every_seconds`.

    Streams of one prefix share a listing, also those of other tables: an object is registered for all of them at once.
    """
    chosen = _choose_prefixes(context, now, names, every_seconds)
    waiting = [prefix for prefix in chosen if not prefix.table_ids <= set(left_to_others)]
    begun = _begin_time(context, now) if waiting else now
    with ThreadPoolExecutor(_LISTINGS) as pool:
        started = pool.map(lambda prefix: _scan_in_time(context, prefix, now, begun, deadline), waiting)
        scans = tuple(scan for listed in started for scan in listed)
    _move_watermarks(context, names)
    return DiscoverReport(scans=scans, left=sum(len(prefix.streams) for prefix in waiting) - len(scans))


def _move_watermarks(context: StageContext, names: Collection[str] | None) -> None:
    """Moves the watermarks of join tables. Discovery moves them because they depend on complete listings.

    Nothing else moves them, so no record settles early while discovery is down. A death before the commit leaves them
    to the next discovery; each move is complete.
    """
    with context.database.begin() as connection:
        movable = watermark.find_movable(connection, context.choose_ids(names))
    if not movable:
        return
    with context.database.begin() as connection:
        locks.hold_epoch(connection)
        watermark.move(connection, movable)
        failpoint("discover.in_watermarks")
    failpoint("discover.after_watermarks")


@dataclass(frozen=True, kw_only=True)
class _Prefix:
    """A prefix to list, with the streams of one or more tables. Streams are in the order of their ids."""

    streams: tuple[KnownStream, ...]
    scans: Mapping[int, Scan]
    """The listings of the streams so far, by stream id."""

    @property
    def table_ids(self) -> frozenset[int]:
        """The tables that read the prefix."""
        return frozenset(known.table_id for known in self.streams)

    @property
    def before(self) -> Scan | None:
        """The listing to go on from. None if a stream was never listed: then all of them need a complete one."""
        found = [self.scans.get(known.stream_id) for known in self.streams]
        known = [scan for scan in found if scan is not None]
        return min(known, key=lambda scan: scan.full_scan_time) if len(known) == len(found) else None


def _choose_prefixes(
    context: StageContext, now: datetime, names: Collection[str] | None, every_seconds: float
) -> list[_Prefix]:
    """Returns the prefixes to list, with the streams of all tables.

    Topics have no prefix: a worker registers each spool object with its offsets. A listing would also register objects
    of flushes without a commit, and their messages would be rows twice.
    """
    chosen = context.choose_ids(names)
    with context.database.begin() as connection:
        known_streams, scans = streams.load_streams(connection), stream_scans.load_scans(connection)
    by_url: dict[str, list[KnownStream]] = {}
    for known in known_streams:
        if not known.removed and known.stream.topic is None:
            by_url.setdefault(known.stream.url, []).append(known)
    found = [_Prefix(streams=tuple(items), scans=scans) for items in by_url.values()]
    due = [
        prefix
        for prefix in found
        if (chosen is None or prefix.table_ids & set(chosen)) and _is_due(prefix.before, now, every_seconds)
    ]
    return sorted(due, key=lambda prefix: (_last_time(prefix.before, now), prefix.streams[0].stream_id))


def _last_time(before: Scan | None, now: datetime) -> datetime:
    """Returns when a stream was listed last. A time in the future counts as never."""
    return before.scan_time if before and before.scan_time <= now else _LONG_AGO


def _is_due(before: Scan | None, now: datetime, seconds: float) -> bool:
    if before is None or before.resume_key is not None:
        return True
    return not _is_within(before.scan_time, now, seconds)


def _is_within(time: datetime, now: datetime, seconds: float) -> bool:
    """Whether a time is at most this long ago. A time in the future came from a wrong clock, and proves nothing."""
    return timedelta(0) <= now - time < timedelta(seconds=seconds)


def _scan_in_time(
    context: StageContext, prefix: _Prefix, now: datetime, begun: datetime, deadline: Deadline
) -> list[StreamScan]:
    """Lists one prefix, unless the deadline is over before."""
    return [] if deadline.is_over else _scan_safely(context, prefix, now, begun, deadline.half())


def _scan_safely(
    context: StageContext, prefix: _Prefix, now: datetime, begun: datetime, deadline: Deadline
) -> list[StreamScan]:
    try:
        return _scan(context, prefix, now, begun, deadline)
    except PrismError as error:
        reason, transient = str(error), isinstance(error, TransientError)
    return [_failed_scan(context, known, now, reason, transient=transient) for known in prefix.streams]


def _failed_scan(
    context: StageContext, known: KnownStream, now: datetime, reason: str, *, transient: bool
) -> StreamScan:
    """Records the failure of a stream's listing, and returns it."""
    message = f"stream {known.stream.name}: {reason}"
    try:
        with context.database.begin() as connection:
            stream_scans.save_attempt(connection, known.stream_id, now, None if transient else reason)
    except PrismError as error:
        message += f"; nor could that be noted: {error}"
    return StreamScan(
        table_id=known.table_id,
        stream_name=known.stream.name,
        listed=0,
        new=0,
        unknown=0,
        full=False,
        error=message,
        transient=transient,
    )


def _scan(
    context: StageContext, prefix: _Prefix, now: datetime, begun: datetime, deadline: Deadline
) -> list[StreamScan]:
    """Lists from the stored position, or from the beginning if a complete listing is due.

    A death between pages is harmless: registered pages are known, and the next position is stored last, for all streams
    of the prefix at once. A listing cut off by the deadline stores its last key as the place to continue.
    """
    before = prefix.before
    full = _is_full_scan_due(context, before, now)
    full_scan_time = begun if full or before is None else before.full_scan_time
    after = None if full or before is None else before.resume_key or before.position_key
    overlap = Overlap(timedelta(seconds=context.settings.scan_overlap_seconds))
    listed = 0
    totals = {known.stream_id: _Registered() for known in prefix.streams}
    unfinished = False
    for page in _pages(context, prefix, after):
        for item in page:
            overlap.see(item)
        registered = _register(context, prefix, page, now)
        listed += len(page)
        totals = {stream: total + registered[stream] for stream, total in totals.items()}
        failpoint("discover.after_page")
        unfinished = deadline.is_over and context.stores.lists_in_order and overlap.last_key is not None
        if unfinished:
            break
    scan = _next_scan(before, overlap, after, now, full_scan_time, listed=listed, full=full, unfinished=unfinished)
    with context.database.begin() as connection:
        for known in prefix.streams:
            own, found = prefix.scans.get(known.stream_id), totals[known.stream_id].left_out
            left_out = _all_left_out(
                own, found, resumed=before is not None and before.resume_key is not None, full=full
            )
            stream_scans.save_scan(connection, known, replace(scan, left_out=left_out))
    failpoint("discover.after_position")
    return [
        StreamScan(
            table_id=known.table_id,
            stream_name=known.stream.name,
            listed=listed,
            new=totals[known.stream_id].new,
            unknown=totals[known.stream_id].unknown,
            full=full,
            unfinished=unfinished,
            left_out=totals[known.stream_id].left_out,
        )
        for known in prefix.streams
    ]


def _all_left_out(own: Scan | None, found: Counter[LeftOut], *, resumed: bool, full: bool) -> Counter[LeftOut]:
    """Returns the objects that a stream leaves out, by its last listings. `found` are those of the current one."""
    earlier = Counter[LeftOut]() if own is None else Counter(own.left_out)
    if resumed:
        return earlier + found
    # A part of a stream has all of its objects, or fewer.
    return found if full or own is None else earlier | found


def _begin_time(context: StageContext, now: datetime) -> datetime:
    """Returns the start of all complete listings of a run for watermarks, never ahead of the database's clock.

    A listing may begin later than this: it then proves more than it records.
    """
    with context.database.begin() as connection:
        return clock.not_ahead(connection, now)


def _next_scan(
    before: Scan | None,
    overlap: Overlap,
    after: str | None,
    now: datetime,
    full_scan_time: datetime,
    *,
    listed: int,
    full: bool,
    unfinished: bool,
) -> Scan:
    """Returns the state of the listing after this run."""
    is_new = full or before is None
    resumed = before is not None and before.resume_key is not None
    position, youngest = overlap.position(after), overlap.youngest
    if before is not None and resumed:
        if not overlap.is_older(before.resume_time):
            position = before.position_key
        youngest = max(filter(None, (youngest, before.resume_time)), default=None)
        count = before.object_count + listed
    else:  # a part of a stream has all of its objects, or fewer
        count = listed if is_new or before is None else max(before.object_count, listed)
    return Scan(
        position_key=position,
        resume_key=overlap.last_key if unfinished else None,
        resume_time=youngest if unfinished else None,
        scan_time=now,
        full_scan_time=full_scan_time,
        object_count=count,
    )


def _is_full_scan_due(context: StageContext, before: Scan | None, now: datetime) -> bool:
    if before is None:
        return True
    if before.resume_key is not None:
        return False
    if before.object_count < _SMALL_STREAM:
        return True
    return not _is_within(before.full_scan_time, now, context.settings.full_scan_seconds)


def _pages(context: StageContext, prefix: _Prefix, after: str | None) -> Iterator[list[ObjectInfo]]:
    """Yields the objects of a prefix in the order of their keys."""
    page: list[ObjectInfo] = []
    stream = prefix.streams[0].stream
    items = context.stores.list(stream.bucket, stream.key_prefix, after=after)
    if not context.stores.lists_in_order:  # Overlap needs the order, and folders on disk have none
        items = iter(sorted(items, key=lambda item: item.key))
    for item in items:
        page.append(item)
        if len(page) == _PAGE:
            yield page
            page = []
    if page:
        yield page


@dataclass(frozen=True, kw_only=True)
class _Registered:
    """Counts of objects for one stream."""

    new: int = 0
    unknown: int = 0
    left_out: Counter[LeftOut] = field(default_factory=Counter)

    def __add__(self, other: _Registered) -> _Registered:
        left_out = self.left_out + other.left_out
        return _Registered(new=self.new + other.new, unknown=self.unknown + other.unknown, left_out=left_out)


@dataclass(kw_only=True)
class _Sorted:
    """The objects of a page for one stream."""

    found: list[FoundObject] = field(default_factory=list)
    strange: list[FoundObject] = field(default_factory=list)
    old: list[FoundObject] = field(default_factory=list)
    """Objects of days before `since`."""
    left_out: Counter[LeftOut] = field(default_factory=Counter)


def _register(
    context: StageContext, prefix: _Prefix, page: list[ObjectInfo], now: datetime
) -> Mapping[int, _Registered]:
    """Registers the objects of a page for all streams in one transaction. Returns the counts by stream id.

    A death inside leaves no object known to one table and unknown to another. For each stream a page without news takes
    one statement, or none.
    """
    by_stream = {known.stream_id: _sort(known, page) for known in prefix.streams}
    if not any(of_stream.found or of_stream.strange or of_stream.old for of_stream in by_stream.values()):
        return {stream: _Registered(left_out=of_stream.left_out) for stream, of_stream in by_stream.items()}
    counts = {}
    with context.database.begin() as connection:
        for known in prefix.streams:
            of_stream, added = by_stream[known.stream_id], 0
            if of_stream.found and staging_objects.has_news(connection, known.stream_id, of_stream.found):
                added = staging_objects.register(
                    connection, known.stream_id, of_stream.found, now, route=known.stream.route, listed=True
                )
            for odd in of_stream.strange:
                staging_objects.register_unknown(connection, odd, UNREADABLE, now)
            old = update_old(connection, known, of_stream.old, now, listed=True)
            failpoint("discover.in_page")
            counts[known.stream_id] = _Registered(
                new=added, unknown=len(of_stream.strange), left_out=of_stream.left_out + old
            )
    return counts


def _sort(known: KnownStream, page: Sequence[ObjectInfo]) -> _Sorted:
    """Divides the objects of a page by what becomes of them in one stream."""
    of_stream = _Sorted()
    for item in page:
        reason = reason_left_out(known.stream, item.key, item.content_length)
        if reason is LeftOut.BEFORE_SINCE and is_readable(item.key):
            of_stream.old.append(_found(known, item))
        elif reason:
            of_stream.left_out[reason] += 1
        else:
            (of_stream.found if is_readable(item.key) else of_stream.strange).append(_found(known, item))
    return of_stream


def _found(known: KnownStream, item: ObjectInfo) -> FoundObject:
    return FoundObject(
        bucket=known.stream.bucket,
        key=storable(item.key),
        etag=item.etag,
        content_length=item.content_length,
        send_time=item.last_modified,
    )
