"""Registers objects named by messages of the queues. A repeated message registers nothing twice."""

from __future__ import annotations

import dataclasses
import operator
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import Connection

from prism_assets.domain.errors import ObjectMissing, PrismError, TerminalError
from prism_assets.domain.streams.intake import LeftOut, reason_left_out
from prism_assets.domain.streams.notifications import CreatedObject, Notification, latest, parse_notification
from prism_assets.domain.text import counted
from prism_assets.failpoints import failpoint
from prism_assets.metadata.intake import staging_objects, streams
from prism_assets.metadata.intake.backlog import count_backlog
from prism_assets.metadata.intake.staging_objects import FoundObject
from prism_assets.metadata.intake.streams import KnownStream
from prism_assets.objectstore.config import ObjectInfo
from prism_assets.queues.sqs import BATCH, Message, SqsQueue
from prism_assets.stages.context import StageContext
from prism_assets.stages.deadlines import NEVER, Deadline
from prism_assets.stages.discover.registering import (
    UNREADABLE,
    StreamIndex,
    is_readable,
    storable,
    update_old,
    why_unknown,
)
from prism_assets.stages.sums import Summable, summed_by

_ROUND = 100
"""Messages of one transaction. Gathering them takes far less than the usual visibility timeout of 30 seconds."""
_BODY_SHOWN = 200
_HEADS_AT_ONCE = 8
_PARTIAL_ROUNDS = 2
"""Successive rounds with room left that end the reading of a queue. One alone proves no empty queue, because a call
without waiting asks some servers of SQS only.
"""
_ParsedMessage = tuple[Message, Notification]
"""A message and its parsed notification."""


@dataclass(frozen=True, kw_only=True)
class ReceiveReport(Summable):
    """Results of the messages of one run. Objects are counted by event."""

    messages: int = 0
    registered: int = 0
    known: int = 0
    """Already registered."""
    unknown: int = 0
    ignored: int = 0
    left_out: Mapping[LeftOut, int] = field(
        default_factory=dict, metadata={"add": lambda one, other: Counter(one) + Counter(other)}
    )
    """Objects that are not read, by reason. They also count as `ignored`."""
    errors: tuple[str, ...] = ()
    rests: bool = summed_by(operator.or_, False)
    """Messages stay in the queues because more objects are pending than PRISM_BACKLOG_OBJECTS allows."""

    def describe(self) -> str:
        """Returns the figures in a sentence."""
        return (
            f"{counted(self.messages, 'message')}: {self.registered} new, {self.known} known, {self.unknown} unknown, "
            f"{self.ignored} ignored"
        )


def run_receive(context: StageContext, *, now: datetime, deadline: Deadline = NEVER) -> ReceiveReport:
    """Receives from the queues, one round of each in turn, until they are empty, time is over, or the backlog is full.

    Messages that keep trickling in do not prolong the call: a queue also ends after `_PARTIAL_ROUNDS`, and the next
    call takes its later messages. A failing queue does not stop the others. The report has its error, and its messages
    stay there.
    """
    limit = context.settings.backlog_objects
    with context.database.begin() as connection:
        backlog = count_backlog(connection, limit)
    report, waiting = ReceiveReport(), [(queue, 0) for queue in context.queues]
    while waiting and not deadline.is_over:
        queue, partial = waiting.pop(0)
        if backlog + report.registered >= limit:
            return dataclasses.replace(report, rests=True)
        wait = deadline.seconds_left / (len(waiting) + 1)  # an empty queue would otherwise use up the time of the next
        taken = _take_round_safely(context, queue, now, deadline, wait)
        report += taken
        partial = 0 if taken.messages > _ROUND - BATCH else partial + 1
        if taken.messages and not taken.errors and partial < _PARTIAL_ROUNDS:
            waiting.append((queue, partial))
    return report


def _take_round_safely(
    context: StageContext, queue: SqsQueue, now: datetime, deadline: Deadline, wait: float
) -> ReceiveReport:
    try:
        return _take_round(context, queue, now, deadline, wait)
    except PrismError as error:
        return ReceiveReport(errors=(str(error),))


def _take_round(
    context: StageContext, queue: SqsQueue, now: datetime, deadline: Deadline, wait: float
) -> ReceiveReport:
    """Receives, commits, and only then deletes.

    A death before the commit leaves the messages in the queue. After the commit they come again, and their objects are
    known.
    """
    messages, trouble = _gather(queue, deadline, wait)
    if not messages:
        return ReceiveReport()
    read = [(message, parse_notification(message.body)) for message in messages]
    heads = _ask_heads(context, read)
    parsed, silence = _without_silent(read, heads, queue)
    failpoint("receive.before_commit")
    with context.database.begin() as connection:
        index = StreamIndex.of(streams.load_streams(connection))
        sorting = _sort(parsed, heads, queue, index)
        registered = _register(connection, sorting, now)
        failpoint("receive.in_commit")
    failpoint("receive.after_commit")
    problems = queue.delete([message for message, _ in parsed])
    failpoint("receive.after_delete")
    return ReceiveReport(
        messages=len(parsed),
        registered=registered,
        known=sorting.named - registered,
        unknown=len(sorting.unknown),
        ignored=sorting.ignored,
        left_out=sorting.left_out,
        errors=(*trouble, *silence, *problems),
    )


def _gather(queue: SqsQueue, deadline: Deadline, wait: float) -> tuple[list[Message], tuple[str, ...]]:
    """Receives until a round is full. One empty answer after a wait proves an empty queue; without waiting, two do.

    An error ends the round, and is reported with the messages before it: no other receiver sees these for a while.
    """
    messages: list[Message] = []
    tries = 1 if queue.wait_seconds >= 1 else 2
    while tries and len(messages) <= _ROUND - BATCH and not deadline.is_over:
        try:
            found = queue.receive(wait_seconds=0 if messages else wait)
        except PrismError as error:
            if not messages:
                raise
            return messages, (str(error),)
        messages += found
        tries -= not found
    return messages, ()


_Place = tuple[str, str]
"""Bucket and key."""


def _ask_heads(context: StageContext, parsed: Sequence[_ParsedMessage]) -> Mapping[_Place, ObjectInfo | PrismError]:
    """Asks the store for the length of objects of streams if their events have no size, before any transaction.

    A silent bucket is asked once by each of a few threads, and no more in this round.
    """
    unsized = {
        _place(item) for _, notification in parsed for item in notification.created if item.content_length is None
    }
    if not unsized:
        return {}
    with context.database.begin() as connection:
        index = StreamIndex.of(streams.load_streams(connection))
    places = sorted(place for place in unsized if is_readable(place[1]) and _is_read(index.find(*place)))
    silent: dict[str, PrismError] = {}
    with ThreadPoolExecutor(_HEADS_AT_ONCE) as pool:
        return dict(zip(places, pool.map(lambda place: _ask_head(context, place, silent), places), strict=True))


def _without_silent(
    parsed: Sequence[_ParsedMessage], heads: Mapping[_Place, ObjectInfo | PrismError], queue: SqsQueue
) -> tuple[list[_ParsedMessage], tuple[str, ...]]:
    """Returns the messages with known objects, and a sentence about the others, which come again.

    A silent bucket blocks no object of another bucket.
    """
    silent = {place: error for place, error in heads.items() if not isinstance(error, ObjectInfo | TerminalError)}
    kept = [pair for pair in parsed if silent.keys().isdisjoint(map(_place, pair[1].created))]
    if len(kept) == len(parsed):
        return kept, ()
    left = counted(len(parsed) - len(kept), "message")
    return kept, (f"{left} in queue {queue.name} come again, as events have no size: {next(iter(silent.values()))}",)


def _place(item: CreatedObject) -> _Place:
    return item.bucket, item.key


def _is_read(known: Sequence[KnownStream]) -> bool:
    return any(not item.removed for item in known)


def _ask_head(context: StageContext, place: _Place, silent: dict[str, PrismError]) -> ObjectInfo | PrismError:
    """Returns the store's answer on an object, or its error. `silent` collects the buckets without an answer."""
    bucket, key = place
    if bucket in silent:
        return silent[bucket]
    try:
        return context.stores.head(bucket, key)
    except TerminalError as error:
        return error
    except PrismError as error:
        silent[bucket] = error
        return error


@dataclass
class _SortedEvents:
    """Events by outcome."""

    streams: dict[int, tuple[KnownStream, list[CreatedObject]]] = field(default_factory=dict)
    unknown: list[tuple[FoundObject, str]] = field(default_factory=list)
    named: int = 0
    """Events of objects under streams, including repetitions, once for each table that reads the object."""
    ignored: int = 0
    left_out: Counter[LeftOut] = field(default_factory=Counter)
    old: dict[int, tuple[KnownStream, list[CreatedObject]]] = field(default_factory=dict)
    """Objects of days before `since`, by stream."""

    def add(self, item: CreatedObject, index: StreamIndex) -> None:
        """Treats an object as a listing would. Streams removed from the table files are not listed."""
        known = index.find(item.bucket, item.key)
        reasons = {one.stream_id: reason_left_out(one.stream, item.key, item.content_length or 0) for one in known}
        reading = [one for one in known if not (one.removed or reasons[one.stream_id])]
        if not known and item.key.endswith("/") and not item.content_length:
            self.ignored += 1
        elif not known:
            self.unknown.append((_found(item), why_unknown(storable(item.key))))
        elif not reading:
            self.ignored += 1
            for one in known:
                if not one.removed:
                    self._leave_out(item, one, reasons[one.stream_id])
        elif not is_readable(item.key):
            self.unknown.append((_found(item), UNREADABLE))
        elif item.content_length is None:  # its stream came into force after the requests for lengths
            self.unknown.append((_found(item), "its event has no size; the next listing finds it"))
        else:
            self.named += len(reading)
            for one in reading:
                self.streams.setdefault(one.stream_id, (one, []))[1].append(item)

    def _leave_out(self, item: CreatedObject, known: KnownStream, reason: LeftOut | None) -> None:
        if reason is LeftOut.BEFORE_SINCE and item.content_length is not None and is_readable(item.key):
            self.old.setdefault(known.stream_id, (known, []))[1].append(item)
        elif reason:
            self.left_out[reason] += 1


def _sort(
    parsed: Sequence[_ParsedMessage],
    heads: Mapping[_Place, ObjectInfo | PrismError],
    queue: SqsQueue,
    index: StreamIndex,
) -> _SortedEvents:
    sorting = _SortedEvents()
    for message, notification in parsed:
        sorting.ignored += notification.ignored
        for number, reason in enumerate(notification.errors):
            sorting.unknown.append(_unreadable(message, queue, number, reason))
        for item in notification.created:
            match heads.get(_place(item)) if item.content_length is None else None:
                case None:
                    sorting.add(item, index)
                case ObjectInfo() as head:
                    sorting.add(replace(item, content_length=head.content_length, etag=head.etag), index)
                case ObjectMissing():
                    sorting.ignored += 1
                case error:
                    why = f"its event has no size, and the store does not say it: {error}; listings look for it, too"
                    sorting.unknown.append((_found(item), why))
    return sorting


def _unreadable(message: Message, queue: SqsQueue, number: int, error: str) -> tuple[FoundObject, str]:
    """Returns an entry for an unreadable message. Its queue and id replace bucket and key, and no bucket has such a
    name.
    """
    return FoundObject(
        bucket=f"sqs:{queue.name}",
        key=f"{message.message_id}#{number}" if number else message.message_id,
        etag=None,
        content_length=len(message.body),
        send_time=None,
    ), f"the message cannot be read: {error}; it begins with {message.body[:_BODY_SHOWN]!a}"


def _register(connection: Connection, sorting: _SortedEvents, now: datetime) -> int:
    """Registers streams by id and objects by key, so that two receivers never wait for each other.

    Known objects of days before `since` come after all others: no object is old in one message and new in another.
    """
    registered = 0
    for _, (known, created) in sorted(sorting.streams.items()):
        found = [_found(item) for item in latest(created)]
        registered += staging_objects.register(connection, known.stream_id, found, now, route=known.stream.route)
    for _, (known, created) in sorted(sorting.old.items()):
        old = [_found(item) for item in latest(created)]
        sorting.left_out += update_old(connection, known, old, now, listed=False)
    for item, message in sorted(sorting.unknown, key=lambda pair: (pair[0].bucket, pair[0].key)):
        staging_objects.register_unknown(connection, item, message, now)
    return registered


def _found(item: CreatedObject) -> FoundObject:
    return FoundObject(
        bucket=item.bucket,
        key=storable(item.key),
        etag=item.etag,
        content_length=item.content_length or 0,
        send_time=item.event_time,
    )
