"""Messages in the memory of a worker, on their way to a spool object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, NamedTuple

from prism_assets.kafka.cluster import TopicIdentity
from prism_assets.kafka.reader import Place


class LastMessage(NamedTuple):
    """The last message of a partition that was read."""

    offset: int
    leader_epoch: int | None


@dataclass
class Position:
    """A partition that is read: the next offset to commit, and what was read from there on."""

    place: Place
    token: str
    """The lease."""
    next_offset: int
    leader_epoch: int | None
    batches: list[Any] = field(default_factory=list)
    """The messages as batches of Arrow, which take a third of the memory of the client's objects."""
    records: int = 0
    """The number of messages."""
    size: int = 0
    """Bytes of the batches."""
    last: LastMessage | None = None
    reached: int | None = None
    """The end of the partition after the messages, if it was reached."""
    is_checked: bool = False
    """The first message after the assignment came, and its offset is sound."""
    is_paused: bool = False

    def unread(self, messages: Sequence[Any]) -> Sequence[Any]:
        """Returns messages from the position on. The client's queue may hold earlier ones of a former assignment."""
        if messages[0].offset() >= self.next_offset:
            return messages
        return [message for message in messages if message.offset() >= self.next_offset]

    def add(self, messages: Sequence[Any]) -> None:
        """Takes the next messages."""
        # The format needs pyarrow, which other commands do not load.
        from prism_assets.kernels.messages.spool_file import to_batch

        batch = to_batch(messages)
        self.batches.append(batch)
        self.records += len(messages)
        self.size += batch.nbytes
        self.last = LastMessage(messages[-1].offset(), messages[-1].leader_epoch())
        self.reached = None

    @property
    def to_offset(self) -> int:
        """The end of what was read: after the last message, or at the end of the partition."""
        return max(self.last.offset + 1 if self.last else self.next_offset, self.reached or 0)

    @property
    def has_progress(self) -> bool:
        """Whether a range can be committed."""
        return self.to_offset > self.next_offset

    def part(self) -> SpoolPart:
        """Returns what was read."""
        return SpoolPart(
            place=self.place,
            token=self.token,
            from_offset=self.next_offset,
            to_offset=self.to_offset,
            batches=tuple(self.batches),
            records=self.records,
            leader_epoch=self.last.leader_epoch if self.last else None,
        )

    def commit(self, part: SpoolPart) -> None:
        """Forgets messages that were committed."""
        self.next_offset = part.to_offset
        self.leader_epoch = self.leader_epoch if part.leader_epoch is None else part.leader_epoch
        self.batches, self.records, self.size, self.last, self.reached = [], 0, 0, None, None


@dataclass(frozen=True, kw_only=True)
class SpoolPart:
    """Offsets of one partition with their messages."""

    place: Place
    token: str
    from_offset: int
    to_offset: int
    batches: tuple[Any, ...]
    records: int
    """The number of messages."""
    leader_epoch: int | None
    """The epoch of the last message."""


def message_time(milliseconds: int) -> datetime:
    """Returns the time of a message, which producers choose freely, within the calendar."""
    last = datetime.max.replace(tzinfo=timezone.utc)
    return last if milliseconds > last.timestamp() * 1000 else datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


@dataclass(frozen=True)
class SpoolContent:
    """The bytes of a spool object, and the first and the last time of each part, if its messages have any."""

    content: bytes
    times: tuple[tuple[datetime, datetime] | None, ...]

    @property
    def earliest(self) -> datetime | None:
        """The first time of any part."""
        return min((found[0] for found in self.times if found), default=None)


def encode_spool(cluster: str, identity: TopicIdentity, parts: Sequence[SpoolPart]) -> SpoolContent:
    """Returns the spool object of some parts of a topic."""
    from prism_assets.kernels.messages.spool_file import Segment, SpoolOrigin, encode

    origin = SpoolOrigin(
        cluster=cluster, cluster_id=identity.cluster_id, topic=parts[0].place.topic, topic_id=identity.topic_id
    )
    encoded = encode(
        origin,
        [
            (
                Segment(
                    partition=part.place.partition,
                    from_offset=part.from_offset,
                    to_offset=part.to_offset,
                    records=part.records,
                ),
                part.batches,
            )
            for part in parts
        ],
    )
    times = [None if found is None else (message_time(found[0]), message_time(found[1])) for found in encoded.times]
    return SpoolContent(encoded.content, tuple(times))
