"""Reads the topics of one cluster into spool objects, turn after turn.

A turn takes messages from the client, and flushes the streams whose messages waited long enough. Every few seconds the
spooler renews leases, looks at topics, and takes or releases partitions. The spooler has a thread of its own, so
conversion never delays reading.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime

from prism_assets.domain.errors import (
    DatabaseUnavailable,
    KafkaUnavailable,
    LeaseLost,
    MissingTopic,
    PrismError,
    TransientError,
)
from prism_assets.kafka.cluster import KafkaCluster, TopicIdentity
from prism_assets.kafka.reader import EndReached, Event, MessagesRead, PositionLost, TopicInDoubt, TopicReader
from prism_assets.kafka.spool import Position
from prism_assets.metadata import leases
from prism_assets.metadata.kafka import partitions, topics
from prism_assets.metadata.kafka.partitions import TakenPartition
from prism_assets.stages.context import StageContext
from prism_assets.stages.kafka.flush import flush
from prism_assets.stages.kafka.reading import Reading, SpoolFigures
from prism_assets.stages.kafka.register import look_at_topics, note_fault
from prism_assets.stages.kafka.shares import share_partitions
from prism_assets.stages.kafka.sources import Source, load_sources

LEASE_SECONDS = 15.0
"""The lease of a partition. Every five seconds the reader renews leases and looks at topics."""
_PAUSE_SECONDS, _RETRY_SECONDS = 2.0, 10.0
"""Pauses: of a stream after a failed flush, and between looks at a silent cluster."""
_POLL_SECONDS = 0.1
_IDLE_SECONDS = 300.0
"""A worker that left partitions unattended gets none for this time: it may have no connection to the cluster."""
MOST_BYTES = 256 << 20
"""The most bytes of messages in memory, for all streams of one cluster in a worker."""


class Spooler:
    """The reader of one cluster in one worker."""

    def __init__(
        self,
        context: StageContext,
        cluster: KafkaCluster,
        worker: str,
        *,
        clock: Callable[[], datetime],
        wanted: Callable[[], Collection[int] | None] = lambda: None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """`worker` is the name of the live worker in its leases; `wanted` returns its tables, None for all."""
        self._context, self._cluster, self._worker, self._clock = context, cluster, worker, clock
        self._wanted, self._lease = wanted, lease_seconds
        self._readings: dict[int, Reading] = {}
        """The streams that are read, by `topic_pk`."""
        self._readers: list[tuple[TopicReader, dict[str, int]]] = []
        """Consumers of the client, each with the `topic_pk` of each topic name. No consumer has a name twice."""
        self._start = time.monotonic()
        self._idle_until: dict[str, float] = {}
        """When workers that left partitions unattended get some again."""
        self._next_look = self._next_beat = 0.0
        self._ends: dict[tuple[int, int], int] = {}
        """The last stable offsets at the last look, which the next beat notes."""
        self._ends_time: datetime | None = None
        """A time before the brokers were asked for these offsets."""
        self.figures = SpoolFigures()
        self.errors: list[str] = []
        """Sentences for the log of the worker."""

    def turn(self, seconds: float = _POLL_SECONDS) -> None:
        """Takes one turn."""
        now = time.monotonic()
        self._beat_if_due()
        if now >= self._next_look:
            self._next_look = now + self._lease / 3
            self._look()
        if not self._readings:
            time.sleep(seconds)
        for reader, names in list(self._readers):
            for event in reader.poll(seconds / len(self._readers)):
                self._take(names, event)
            for fault in reader.faults():
                self._fault(fault, [self._readings[pk].source for pk in names.values() if pk in self._readings])
        self._flush_due()

    def stop(self) -> None:
        """Flushes all messages in memory and releases the partitions, so other workers go on at once."""
        for reading in list(self._readings.values()):
            if reading.waiting_since is not None:
                self._flush(reading)
        held = [position.token for reading in self._readings.values() for position in reading.positions.values()]
        for reading in list(self._readings.values()):
            self._forget(reading)
        if held:
            with self._context.database.begin() as connection:
                partitions.release(connection, held)

    def close(self) -> None:
        """Ends the connections. Leases that were not given back run out."""
        self._readings.clear()
        for reader, _ in self._readers:
            reader.close()
        self._readers.clear()

    def _look(self) -> None:
        """Compares topics, and takes and gives back partitions."""
        sources = self._sources()
        try:
            looks = look_at_topics(self._context, self._cluster, sources, self._clock())
        except PrismError as error:
            self._fault(error, sources)
            self._next_look = time.monotonic() + _RETRY_SECONDS
            return
        self.errors += [*looks.unreadable.values(), *looks.faults]
        if looks.has_registered:
            sources = self._sources()
        self._adopt([source for source in sources if source.stream_id in looks.readable], looks.readable)
        self._note_ends()

    def _look_soon(self) -> None:
        self._next_look = min(self._next_look, time.monotonic() + _PAUSE_SECONDS)

    def _sources(self) -> list[Source]:
        return [
            source
            for source in load_sources(self._context, self._wanted())
            if source.topic.cluster == self._cluster.name
        ]

    def _note_ends(self) -> None:
        places = {
            position.place: (pk, number)
            for pk, reading in self._readings.items()
            for number, position in reading.positions.items()
        }
        self._ends_time = self._clock()
        try:
            found = self._cluster.stable_offsets(places)
        except PrismError as error:
            self.errors.append(str(error))
            found = {}
        self._ends = {places[place]: offset for place, offset in found.items()}
        self.figures.behind = sum(
            max(0, end - self._readings[pk].positions[number].next_offset) for (pk, number), end in self._ends.items()
        )

    def _adopt(self, sources: Sequence[Source], identities: dict[int, TopicIdentity]) -> None:
        """Reads the share of this worker, and nothing else."""
        by_pk = {source.known.topic_pk: source for source in sources if source.known.topic_pk is not None}
        for pk in self._readings.keys() - by_pk.keys():
            self._drop(self._readings[pk], self._readings[pk].positions, release=True)
        for pk, reading in self._readings.items():
            reading.source = by_pk[pk]
        if not by_pk:
            return
        # Over all tables of the cluster, also where this worker reads only some: all workers must compute the same.
        with self._context.database.begin() as connection:
            tables = topics.load_tables_of(connection, self._cluster.name)
            known = partitions.load_partitions(connection, tables)
            presences = leases.load_presences(connection).values()
        now = time.monotonic()
        self._idle_until = {name: until for name, until in self._idle_until.items() if until > now}
        share = share_partitions(known, tables, presences, self._worker, self._lease, idle=self._idle_until)
        if now - self._start > 2 * self._lease:  # earlier the others may have begun just now, too
            self._idle_until |= dict.fromkeys(share.idle, now + _IDLE_SECONDS)
        for pk, reading in list(self._readings.items()):
            surplus = [number for number in reading.positions if (pk, number) not in share.wanted]
            if surplus:
                self._flush(reading)
                self._drop(reading, surplus, release=True)
        missing = [
            (pk, number)
            for pk, number in share.wanted
            if pk in by_pk and (pk not in self._readings or number not in self._readings[pk].positions)
        ]
        if missing:
            with self._context.database.begin() as connection:
                taken = partitions.take(connection, missing, self._worker, self._lease)
            for item in taken:
                source = by_pk[item.topic_pk]
                self._assign(source, identities[source.stream_id], item)
        self._count()

    def _assign(self, source: Source, identity: TopicIdentity, taken: TakenPartition) -> None:
        reading = self._readings.get(taken.topic_pk)
        if reading is None:
            reading = Reading(source, taken.topic_pk, identity, self._reader_for(taken.topic_pk, source.topic.name))
            self._readings[taken.topic_pk] = reading
        place = source.place(taken.partition)
        reading.positions[taken.partition] = Position(place, taken.token, taken.next_offset, taken.leader_epoch)
        reading.reader.assign(place, taken.next_offset, taken.leader_epoch)

    def _reader_for(self, topic_pk: int, name: str) -> TopicReader:
        """Returns a reader without this topic. Two tables may read one topic, each from its own offsets."""
        for reader, names in self._readers:
            if names.setdefault(name, topic_pk) == topic_pk:
                return reader
        reader = self._cluster.reader()
        self._readers.append((reader, {name: topic_pk}))
        return reader

    def _take(self, names: dict[str, int], event: Event) -> None:
        """Takes over what the client returned for one partition. Partitions given back meanwhile are left out."""
        reading = self._readings.get(names.get(event.place.topic, 0))
        position = reading.positions.get(event.place.partition) if reading else None
        if reading is None or position is None:
            return
        match event:
            case MessagesRead(messages=messages):
                fresh = position.unread(messages)
                if not fresh:
                    return
                if not position.is_checked and not self._is_sound(reading, position, fresh[0].offset()):
                    return
                position.is_checked = True
                position.add(fresh)
            case EndReached(offset=offset):
                is_ahead = not position.is_checked and offset > position.next_offset
                if is_ahead and not self._is_sound(reading, position, offset):
                    return
                position.reached = offset
            case PositionLost(reason=reason):
                self._lose(reading, position, reason)
                return
            case TopicInDoubt():
                self._look_soon()
                return
        if reading.waiting_since is None and position.has_progress:
            reading.waiting_since = time.monotonic()
        self._relieve()

    def _lose(self, reading: Reading, position: Position, reason: str) -> None:
        """Stops a partition whose position is gone. In another topic of the same name the position means nothing."""
        try:
            identity = self._cluster.identities({reading.source.topic.name}).get(reading.source.topic.name)
        except PrismError as error:
            self.errors.append(str(error))
            identity = None
        if identity is None or identity.ids != reading.identity.ids:
            self._drop(reading, [position.place.partition])
            self._look_soon()
            return
        self._stop_partition(reading, position, reason)

    def _is_sound(self, reading: Reading, position: Position, first: int) -> bool:
        """Whether the first message or the end may be beyond the position: markers and compacted messages leave gaps.

        A silent reset leaves one, too. Then the partition no longer has the position, and stops.
        """
        if first == position.next_offset:
            return True
        try:
            bounds = self._cluster.offsets([position.place])[position.place]
        except (PrismError, KeyError) as error:
            if isinstance(error, PrismError):
                self.errors.append(str(error))
            self._drop(reading, [position.place.partition])  # nobody told: the next look begins here again
            self._look_soon()
            return False
        if bounds.low <= position.next_offset:
            return True
        self._stop_partition(
            reading, position, f"the offset {position.next_offset:,} is gone: the first one left is {bounds.low:,}"
        )
        return False

    def _stop_partition(self, reading: Reading, position: Position, reason: str) -> None:
        """Commits what was read soundly, and stops the partition until a person decides."""
        if position.has_progress:
            self._flush(reading)
        if position is not reading.positions.get(position.place.partition):
            return  # the flush lost it
        if position.has_progress:  # the flush failed: the next reader comes here again, from the committed offset
            self._drop(reading, [position.place.partition])
            self._look_soon()
            return
        name, number = reading.source.table.name, position.place.partition
        # In a truncated log the first offsets are still there, and were read.
        to = str(position.next_offset) if "TRUNCATION" in reason else "earliest"
        told = (
            f"partition {number} of {reading.source.name} cannot be read from offset {position.next_offset:,}: "
            f"{reason}; decide with `prism kafka skip {name} --partition {number} --to {to} --reason …`"
        )
        with self._context.database.begin() as connection:
            partitions.stop(connection, position.token, told)
        self.errors.append(told)
        self._drop(reading, [number])

    def _flush_due(self) -> None:
        now = time.monotonic()
        for reading in [reading for reading in self._readings.values() if reading.is_due(now)]:
            self._beat_if_due()  # many flushes may take longer than a lease, and this may lose partitions
            if reading.positions:
                self._flush(reading)

    def _flush(self, reading: Reading) -> None:
        """Makes the messages of a stream durable. After an error of the surroundings they wait for the next try."""
        moved = [position for _, position in sorted(reading.positions.items()) if position.has_progress]
        parts = [position.part() for position in moved]
        if not parts:
            reading.waiting_since = None
            return
        try:
            done = flush(self._context, self._cluster, reading.source, reading.topic_pk, reading.identity, parts)
        except (LeaseLost, MissingTopic) as error:
            self.errors.append(str(error))
            self._drop(reading, list(reading.positions))
            self._look_soon()
            return
        except PrismError as error:
            self._fail_flush(reading, error)
            return
        for position, part in zip(moved, parts, strict=True):
            position.commit(part)
        reading.waiting_since, reading.not_before = None, 0.0
        reading.resume()
        self.figures.messages += done.messages
        self.figures.objects += done.objects
        self.figures.content_length += done.content_length

    def _fail_flush(self, reading: Reading, error: PrismError) -> None:
        """Keeps the messages for a later try, and reads no more of them than fit.

        If PostgreSQL did not answer, the transaction may be committed or not: the position in the database decides, so
        the partitions are taken again.
        """
        self.figures.failures += 1
        self.errors.append(f"{reading.source.name}: {error}")
        if isinstance(error, DatabaseUnavailable):
            self._drop(reading, list(reading.positions))
            self._look_soon()
            return
        others = self._readings.values() if isinstance(error, KafkaUnavailable) else [reading]
        for each in others:
            each.not_before = time.monotonic() + _PAUSE_SECONDS
        if reading.size >= reading.source.topic.flush_bytes:
            reading.pause()

    def _relieve(self) -> None:
        """Flushes the largest streams when all together take too much memory.

        If that fails, all streams with messages are paused: the others would grow on beside the largest one.
        """
        while self._is_full():
            largest = max(self._readings.values(), key=lambda reading: reading.size)
            if time.monotonic() >= largest.not_before:
                self._flush(largest)
            if largest.size:
                for reading in self._readings.values():
                    if reading.size:
                        reading.pause()
                return

    def _is_full(self) -> bool:
        return sum(reading.size for reading in self._readings.values()) > MOST_BYTES

    def _beat_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._next_beat:
            self._next_beat = now + self._lease / 3
            self._beat()

    def _beat(self) -> None:
        """Renews the leases, and drops partitions that others have."""
        held = {
            position.token: (reading, number)
            for reading in self._readings.values()
            for number, position in reading.positions.items()
        }
        if not held:
            return
        with self._context.database.begin() as connection:
            kept = partitions.beat(connection, list(held), self._ends, self._ends_time)
        for token in held.keys() - kept:
            reading, number = held[token]
            self._drop(reading, [number])

    def _drop(self, reading: Reading, numbers: Iterable[int], *, release: bool = False) -> None:
        """Stops to read partitions, and forgets their messages, which their next reader reads again."""
        gone = [reading.positions.pop(number) for number in list(numbers)]
        reading.reader.unassign([position.place for position in gone])
        if not reading.positions:
            self._forget(reading)
        elif not any(position.has_progress for position in reading.positions.values()):
            reading.waiting_since = None
        if release and gone:
            with self._context.database.begin() as connection:
                partitions.release(connection, [position.token for position in gone])
        self._count()

    def _forget(self, reading: Reading) -> None:
        if reading.positions:
            reading.reader.unassign([position.place for position in reading.positions.values()])
            reading.positions.clear()
        self._readings.pop(reading.topic_pk, None)
        for _, names in self._readers:
            if names.get(reading.source.topic.name) == reading.topic_pk:
                del names[reading.source.topic.name]
        for reader, names in [item for item in self._readers if not item[1]]:
            self._readers.remove((reader, names))
            reader.close()

    def _fault(self, error: PrismError, sources: Sequence[Source]) -> None:
        self.figures.failures += 1
        self.errors.append(str(error))
        if not isinstance(error, TransientError) and sources:
            note_fault(self._context, sources, error, self._clock())

    def _count(self) -> None:
        self.figures.partitions = sum(len(reading.positions) for reading in self._readings.values())
