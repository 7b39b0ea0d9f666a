"""Finds the old objects of a table by the days in their keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import islice

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.streams.intake import reason_never_read
from prism_assets.domain.streams.key_dates import day_of_key
from prism_assets.domain.tables.accepted import DateRange
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.domain.text import counted
from prism_assets.metadata.intake import streams
from prism_assets.metadata.intake.history import DatedObject
from prism_assets.metadata.intake.staging_objects import FoundObject
from prism_assets.metadata.intake.streams import KnownStream
from prism_assets.objectstore.config import ObjectInfo
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.registering import is_readable

_PAGE = 1_000


@dataclass(frozen=True, kw_only=True)
class HistoryDay:
    """The objects with one day in their keys."""

    day: date
    objects: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class HistoryPlan:
    """The objects of a history, counted before any registration."""

    table: str
    days: tuple[HistoryDay, ...]
    known: int
    """Begun or finished objects of these days. No batch reads them again."""
    undated: int
    """Objects without a day in their keys."""
    left_out: int
    """Objects of these days that the stream excludes."""

    @property
    def objects(self) -> int:
        """All objects of the days."""
        return sum(day.objects for day in self.days)

    @property
    def bytes(self) -> int:
        """All compressed bytes of the days."""
        return sum(day.bytes for day in self.days)

    def describe(self) -> str:
        """Returns the totals in a sentence."""
        parts = [f"{counted(len(self.days), 'day')}, {counted(self.objects, 'object')}, {self.bytes:,} bytes"]
        if self.known:
            parts.append(f"{self.known:,} of them already begun or done")
        if self.left_out:
            parts.append(f"{self.left_out:,} others left out by the stream")
        if self.undated:
            parts.append(f"{self.undated:,} without a day in their keys")
        return "; ".join(parts)


@dataclass(kw_only=True)
class Listed:
    """Counts of a listing, by day."""

    objects: Counter[date] = field(default_factory=Counter)
    bytes: Counter[date] = field(default_factory=Counter)
    undated: int = 0
    left_out: int = 0

    @property
    def days(self) -> tuple[HistoryDay, ...]:
        """The days with objects, in order."""
        return tuple(
            HistoryDay(day=day, objects=count, bytes=self.bytes[day]) for day, count in sorted(self.objects.items())
        )


def choose_table(context: StageContext, name: str) -> TableDefinition:
    """Returns the table of a history. Raises WrongUse for a join table, because its records may be settled."""
    (table,) = context.choose_tables([name])
    if table.join is not None or table.change_log is not None:
        raise WrongUse(
            f"{name} is a join table, or the log of one: its watermark has passed old changes. Make the table anew "
            "with all objects in its streams"
        )
    return table


def choose_streams(context: StageContext, table: TableDefinition) -> list[KnownStream]:
    """Returns a table's streams from S3. Raises WrongUse if another table reads one of their prefixes, too."""
    with context.database.begin() as connection:
        known = [item for item in streams.load_streams(connection) if not item.removed and item.stream.topic is None]
    own = [item for item in known if item.table_id == table.table_id]
    chosen = [item for item in own if item.stream.enabled and not item.stream.discard]
    if not chosen:
        raise WrongUse(f"{table.name} reads no prefix of a bucket" + (": its streams are stopped" if own else ""))
    for item in chosen:
        if any(other.table_id != table.table_id and other.stream.url == item.stream.url for other in known):
            raise WrongUse(
                f"{item.stream.url} feeds several tables: only a prefix with a single table has a history. Copy the "
                "old objects below a prefix of their own"
            )
    return chosen


def choose_days(table: TableDefinition, first: date, last: date | None, now: datetime) -> DateRange:
    """Returns the days of a history. Raises WrongUse for today, and for days with refused rows."""
    yesterday = now.astimezone(table.zone).date() - timedelta(days=1)
    days = DateRange(first, _last_before_since(table, yesterday) if last is None else last)
    if days.last > yesterday:
        raise WrongUse(f"--until {days.last} is not over yet: discovery registers its objects")
    if days.last < days.first:
        raise WrongUse(f"--from {days.first} is after --until {days.last}")
    kept = table.oldest_kept(now)
    if kept is not None and days.first < kept - timedelta(days=1):
        raise WrongUse(f"days before {kept} are older than retention_days of {table.name}: begin with --from {kept}")
    accepted = yesterday + timedelta(days=1 - table.past_days)
    if table.accept_from == "arrival" and days.first < accepted:
        raise WrongUse(
            f"{table.name} says `accept: {{from: arrival}}`, by which rows before {accepted} are too old: leave `from` "
            "out, and rows are judged by the day in their keys"
        )
    return days


def _last_before_since(table: TableDefinition, yesterday: date) -> date:
    """Returns the last day before all `since` of the table, at most yesterday."""
    begins = [date.fromisoformat(stream.since) for stream in table.streams if stream.since is not None]
    return min([yesterday, *(begin - timedelta(days=1) for begin in begins)])


def pages(context: StageContext, known: KnownStream, days: DateRange, listed: Listed) -> Iterator[list[DatedObject]]:
    """Lists a stream, and yields its objects of the days, up to 1,000 at once. Counts objects in `listed`.

    Lists the whole prefix, 1,000 keys a request, because objects of a day may lie in folders of any depth.
    """
    dated = _dated(context.stores.list(known.stream.bucket, known.stream.key_prefix), known, days, listed)
    while page := list(islice(dated, _PAGE)):
        yield page


def _dated(items: Iterator[ObjectInfo], known: KnownStream, days: DateRange, listed: Listed) -> Iterator[DatedObject]:
    for item in items:
        day = day_of_key(item.key)
        if day is None:
            listed.undated += 1
        elif day not in days:
            continue
        elif reason_never_read(known.stream, item.key, item.content_length) or not is_readable(item.key):
            listed.left_out += 1
        else:
            listed.objects[day] += 1
            listed.bytes[day] += item.content_length
            found = FoundObject(
                bucket=known.stream.bucket,
                key=item.key,
                etag=item.etag,
                content_length=item.content_length,
                send_time=item.last_modified,
            )
            yield DatedObject(found=found, day=day)


def notes(table: TableDefinition) -> Sequence[str]:
    """Returns advice on streams whose old objects discovery registers by itself."""
    return [
        f"stream {stream.name} has no `since`: discovery registers its old objects, too, and they may come first"
        for stream in table.streams
        if stream.since is None and stream.topic is None
    ]
