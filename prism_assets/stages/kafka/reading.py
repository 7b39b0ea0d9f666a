"""The streams of a spooler, and counts."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from prism_assets.kafka.cluster import TopicIdentity
from prism_assets.kafka.reader import Place, TopicReader
from prism_assets.kafka.spool import Position
from prism_assets.stages.kafka.sources import Source


@dataclass
class SpoolFigures:
    """Counts since the start."""

    messages: int = 0
    objects: int = 0
    content_length: int = 0
    """Bytes of spool objects."""
    partitions: int = 0
    """Partitions that this worker reads now."""
    behind: int = 0
    """Offsets from these partitions' positions to their last stable offsets, at the last look."""
    failures: int = 0


@dataclass
class Reading:
    """A stream with the partitions of one spooler."""

    source: Source
    topic_pk: int
    identity: TopicIdentity
    reader: TopicReader
    positions: dict[int, Position] = field(default_factory=dict)
    """The partitions of this worker, by number."""
    waiting_since: float | None = None
    """When the first message of the next flush came, or the first progress without a message."""
    not_before: float = 0.0
    """The next flush after one that failed."""

    @property
    def size(self) -> int:
        """Bytes of the messages in memory."""
        return sum(position.size for position in self.positions.values())

    def is_due(self, now: float) -> bool:
        """Whether messages waited long enough, or are many enough, or hold up others that do not fit."""
        if self.waiting_since is None or now < self.not_before:
            return False
        topic = self.source.topic
        is_over = now - self.waiting_since >= topic.flush_seconds or self.size >= topic.flush_bytes
        return is_over or any(position.is_paused for position in self.positions.values())

    def pause(self) -> None:
        """Reads no more messages until a flush succeeds."""
        self._set_paused(True, self.reader.pause)

    def resume(self) -> None:
        """Reads the paused partitions again."""
        self._set_paused(False, self.reader.resume)

    def _set_paused(self, is_paused: bool, change: Callable[[Collection[Place]], None]) -> None:
        changed = [position for position in self.positions.values() if position.is_paused != is_paused]
        if changed:
            change([position.place for position in changed])
            for position in changed:
                position.is_paused = is_paused
