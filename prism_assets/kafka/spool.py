"""Messages in the memory of a worker, on their way to a spool object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from prism_assets.kafka.cluster import TopicIdentity
from prism_assets.kafka.reader import Place

_MESSAGE_COST = 64
_NO_TIMESTAMP = 0


@dataclass
class Position:
    """A partition that is read: the next offset to commit, and what was read from there on."""

    place: Place
    token: str
    """The lease."""
    next_offset: int
    leader_epoch: int | None
    messages: list[Any] = field(default_factory=list)
    size: int = 0
    """Bytes of the messages."""
    reached: int | None = None
    """The end of the partition after the messages, if it was reached."""
    is_checked: bool = False
    """The first message after the assignment came, and its offset is sound."""
    is_paused: bool = False

    def add(self, messages: Sequence[Any]) -> None:
        """Takes the next messages."""
        self.messages += messages
        self.size += sum(len(message) + _MESSAGE_COST for message in messages)
        self.reached = None

    @property
    def to_offset(self) -> int:
        """The end of what was read: after the last message, or at the end of the partition."""
        after = int(self.messages[-1].offset()) + 1 if self.messages else self.next_offset
        return max(after, self.reached or 0)

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
            messages=tuple(self.messages),
        )

    def commit(self, part: SpoolPart) -> None:
        """Forgets messages that were committed."""
        self.next_offset = part.to_offset
        self.leader_epoch = self.leader_epoch if part.leader_epoch is None else part.leader_epoch
        self.messages, self.size, self.reached = [], 0, None


@dataclass(frozen=True, kw_only=True)
class SpoolPart:
    """Offsets of one partition with their messages."""

    place: Place
    token: str
    from_offset: int
    to_offset: int
    messages: tuple[Any, ...]

    @property
    def leader_epoch(self) -> int | None:
        """The epoch of the last message."""
        epoch: int | None = self.messages[-1].leader_epoch() if self.messages else None
        return epoch

    @property
    def times(self) -> list[datetime]:
        """The times of the messages that have one."""
        found = (message.timestamp() for message in self.messages)
        return [instant_of(milliseconds) for kind, milliseconds in found if kind != _NO_TIMESTAMP and milliseconds >= 0]


def instant_of(milliseconds: int) -> datetime:
    """Returns the time of a message, which producers choose freely, within the calendar."""
    last = datetime.max.replace(tzinfo=timezone.utc)
    return last if milliseconds > last.timestamp() * 1000 else datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def encode_spool(cluster: str, identity: TopicIdentity, parts: Sequence[SpoolPart]) -> bytes:
    """Returns the bytes of the spool object of some parts of a topic."""
    # The format needs pyarrow, which other commands do not load.
    from prism_assets.kernels.messages.spool_file import Segment, SpoolOrigin, encode

    origin = SpoolOrigin(
        cluster=cluster, cluster_id=identity.cluster_id, topic=parts[0].place.topic, topic_id=identity.topic_id
    )
    return encode(
        origin,
        [
            (
                Segment(
                    partition=part.place.partition,
                    from_offset=part.from_offset,
                    to_offset=part.to_offset,
                    records=len(part.messages),
                ),
                part.messages,
            )
            for part in parts
        ],
    )
