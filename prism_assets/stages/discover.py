"""Registers the objects that arrived under the prefixes of the streams. Repeating it registers nothing twice."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from prism_assets.domain.errors import PrismError
from prism_assets.failpoints import failpoint
from prism_assets.metadata import staging_objects, tables
from prism_assets.metadata.staging_objects import FoundObject, Scan
from prism_assets.metadata.tables import KnownStream
from prism_assets.objectstore.stores import ObjectInfo
from prism_assets.stages.context import StageContext

_PAGE = 1_000
_SMALL_STREAM = 10_000
"""Streams with fewer objects are always listed as a whole: ten requests."""


@dataclass(frozen=True, kw_only=True)
class StreamScan:
    """What one listing found."""

    table_id: int
    stream_name: str
    listed: int
    new: int
    unknown: int
    full: bool
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class DiscoverReport:
    """What all listings found."""

    scans: tuple[StreamScan, ...]

    @property
    def new(self) -> int:
        """How many objects were new."""
        return sum(scan.new for scan in self.scans)

    @property
    def errors(self) -> tuple[str, ...]:
        """What went wrong, one sentence a stream."""
        return tuple(scan.error for scan in self.scans if scan.error)


def run_discover(context: StageContext, *, now: datetime, names: Collection[str] | None = None) -> DiscoverReport:
    """Lists all enabled streams. One sick stream does not stop the others; its error is in the report."""
    chosen = context.choose_ids(names)
    with context.database.begin() as connection:
        streams = tables.load_streams(connection)
    scans = []
    for known in streams:
        if known.stream.enabled and not known.stream.discard and (chosen is None or known.table_id in chosen):
            scans.append(_scan_safely(context, known, now))
    return DiscoverReport(scans=tuple(scans))


def _scan_safely(context: StageContext, known: KnownStream, now: datetime) -> StreamScan:
    try:
        return _scan(context, known, now)
    except PrismError as error:
        return StreamScan(
            table_id=known.table_id,
            stream_name=known.stream.name,
            listed=0,
            new=0,
            unknown=0,
            full=False,
            error=f"stream {known.stream.name}: {error}",
        )


def _scan(context: StageContext, known: KnownStream, now: datetime) -> StreamScan:
    """Lists from the stored position, or from the beginning when it is time for that.

    Dying between pages is harmless: pages registered so far are known, and the position moves only with the last.
    """
    with context.database.begin() as connection:
        before = staging_objects.load_scan(connection, known.stream_id)
    full = _is_full_scan_due(context, before, now)
    after = None if full or before is None else before.position_key
    overlap = _Overlap(timedelta(seconds=context.settings.scan_overlap_seconds))
    listed = new = unknown = 0
    for page in _pages(context, known, after):
        for item in page:
            overlap.see(item)
        added, strange = _register(context, known, page, now)
        listed, new, unknown = listed + len(page), new + added, unknown + strange
        failpoint("discover.after_page")
    scan = Scan(
        position_key=overlap.position(after),
        full_scan_time=now if full or before is None else before.full_scan_time,
        object_count=listed if full or before is None else max(before.object_count, listed),
    )
    with context.database.begin() as connection:
        staging_objects.save_scan(connection, known.stream_id, scan, now)
    failpoint("discover.after_position")
    return StreamScan(
        table_id=known.table_id,
        stream_name=known.stream.name,
        listed=listed,
        new=new,
        unknown=unknown,
        full=full,
    )


def _is_full_scan_due(context: StageContext, before: Scan | None, now: datetime) -> bool:
    if before is None or before.object_count < _SMALL_STREAM:
        return True
    return now - before.full_scan_time >= timedelta(seconds=context.settings.full_scan_seconds)


class _Overlap:
    """Finds where the next listing may begin: before the first key that is younger than the overlap.

    With keys that grow with time that is an hour back; with random keys it is near the beginning. Ages are counted
    from the youngest object, so the clock of this machine plays no part.
    """

    def __init__(self, overlap: timedelta) -> None:
        self._overlap = overlap
        self._times: list[tuple[str, datetime]] = []

    def see(self, item: ObjectInfo) -> None:
        self._times.append((item.key, item.last_modified))

    def position(self, before: str | None) -> str | None:
        if not self._times:
            return before
        young = max(time for _, time in self._times) - self._overlap
        position = before
        for key, time in sorted(self._times):
            if time >= young:
                return position
            position = key
        return position


def _pages(context: StageContext, known: KnownStream, after: str | None) -> Iterator[list[ObjectInfo]]:
    page: list[ObjectInfo] = []
    for item in context.stores.list(known.stream.bucket, known.stream.key_prefix, after=after):
        page.append(item)
        if len(page) == _PAGE:
            yield page
            page = []
    if page:
        yield page


def _register(context: StageContext, known: KnownStream, page: list[ObjectInfo], now: datetime) -> tuple[int, int]:
    found: list[FoundObject] = []
    strange: list[FoundObject] = []
    for item in page:
        if item.key.endswith("/"):
            continue  # a folder marker, as consoles make them
        (found if _is_readable(item.key) else strange).append(_found(known, item))
    with context.database.begin() as connection:
        added = staging_objects.register(connection, known.stream_id, known.table_id, found, now)
        for odd in strange:
            staging_objects.register_unknown(connection, odd, "the key cannot be read as a path", now)
    return added, len(strange)


def _is_readable(key: str) -> bool:
    parts = key.split("/")
    return key.isprintable() and not any(part in ("", ".", "..") for part in parts) and len(key.encode()) <= 1_024


def _found(known: KnownStream, item: ObjectInfo) -> FoundObject:
    return FoundObject(
        bucket=known.stream.bucket,
        key=item.key.replace("\x00", "\\0"),
        etag=item.etag,
        content_length=item.content_length,
        send_time=item.last_modified,
    )
