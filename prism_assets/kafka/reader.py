"""Reads messages of assigned partitions, from offsets that the caller keeps. No consumer group exists."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from prism_assets.domain.errors import AccessDenied, KafkaUnavailable, TerminalError
from prism_assets.kafka import client
from prism_assets.kafka.connections import READING, Connection

_MESSAGES = 4_000
"""The most messages of one call: few enough to stay in the caches of the processor until they are columns."""
_LOST = ("_AUTO_OFFSET_RESET", "_LOG_TRUNCATION", "OFFSET_OUT_OF_RANGE")


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True)
class MessagesRead:
    """Messages of one partition in their order."""

    place: Place
    messages: Sequence[Any]


@dataclass(frozen=True)
class EndReached:
    """The end of a partition: `offset` is the next one, after markers of transactions and aborted messages."""

    place: Place
    offset: int


@dataclass(frozen=True)
class PositionLost:
    """A partition no longer has the position: it is below retention, beyond the end, or in a log that was truncated."""

    place: Place
    reason: str


@dataclass(frozen=True)
class TopicInDoubt:
    """The client reports that the topic was deleted or recreated. The next look at the topic decides."""

    place: Place


Event = MessagesRead | EndReached | PositionLost | TopicInDoubt


class TopicReader:
    """One consumer of the client, for partitions of any topics of a cluster. Each topic at most once."""

    def __init__(self, connection: Connection) -> None:
        self._cluster = connection.name
        self._faults: list[TerminalError | KafkaUnavailable] = []
        with client.translated(self._cluster, "connecting"):
            settings = {**connection.settings, **READING, "error_cb": self._note, "log_level": 0}
            self._library = client.library()
            self._consumer: Any = self._library.Consumer(settings, logger=client.LOG)

    def close(self) -> None:
        """Ends the connections."""
        with client.translated(self._cluster, "closing"):
            self._consumer.close()

    def assign(self, place: Place, offset: int, leader_epoch: int | None) -> None:
        """Begins to read a partition. The epoch of the last message lets the broker find a truncated log."""
        epoch = {} if leader_epoch is None else {"leader_epoch": leader_epoch}
        with client.translated(self._cluster, f"reading {place.topic}"):
            self._consumer.incremental_assign([self._library.TopicPartition(*place, offset, **epoch)])

    def unassign(self, places: Collection[Place]) -> None:
        """Stops to read partitions. Messages in the queue of the client are dropped."""
        if places:
            with client.translated(self._cluster, "giving partitions back"):
                self._consumer.incremental_unassign([self._library.TopicPartition(*place) for place in places])

    def pause(self, places: Collection[Place]) -> None:
        """Lets partitions wait."""
        with client.translated(self._cluster, "pausing"):
            self._consumer.pause([self._library.TopicPartition(*place) for place in places])

    def resume(self, places: Collection[Place]) -> None:
        """Goes on with paused partitions."""
        with client.translated(self._cluster, "going on"):
            self._consumer.resume([self._library.TopicPartition(*place) for place in places])

    def poll(self, seconds: float) -> list[Event]:
        """Returns what arrived within `seconds`, in order by partition."""
        with client.translated(self._cluster, "reading"):
            return list(self._events(self._consumer.consume(_MESSAGES, seconds)))

    def faults(self) -> list[TerminalError | KafkaUnavailable]:
        """Returns the faults of the connection since the last call."""
        found, self._faults = self._faults, []
        return found

    def _events(self, found: Sequence[Any]) -> Iterator[Event]:
        """Groups messages by partition. Messages of one topic are the usual case, and take a third of the time."""
        kind = self._library.Message
        if not any(map(kind.error, found)) and len(set(map(kind.topic, found))) == 1:
            topic = found[0].topic() or ""
            for partition, group in groupby(found, kind.partition):
                yield MessagesRead(Place(topic, partition), list(group))
            return
        runs: dict[tuple[Any, int], list[Any]] = {}
        for message in found:
            place = message.topic(), message.partition()
            if message.error() is None:
                if (run := runs.get(place)) is None:
                    runs[place] = run = []
                run.append(message)
                continue
            if place in runs:
                yield MessagesRead(Place(*place), runs.pop(place))
            yield from self._of_error(Place(*place), message)
        for place, messages in runs.items():
            yield MessagesRead(Place(*place), messages)

    def _of_error(self, place: Place, message: Any) -> Iterator[Event]:
        """Yields what an event other than a message says."""
        error = message.error()
        if error.code() == self._library.KafkaError._PARTITION_EOF:
            yield EndReached(place, message.offset())
        elif error.name() in _LOST:
            yield PositionLost(place, f"{error.name()}: {' '.join(error.str().split())}")
        elif client.is_about_missing(error):
            yield TopicInDoubt(place)
        else:
            self._note(error)

    def _note(self, error: Any) -> None:
        """Keeps a fault for the report. The client calls it while it is polled, and goes on by itself."""
        fault = client.error_of(error, self._cluster, "reading")
        if len(self._faults) < 100 and (isinstance(fault, AccessDenied) or not self._faults):
            self._faults.append(fault)
