"""Moves the position of a partition forward, by decision of a person.

The brokers are asked before the transaction. The transaction locks the row of the partition, as a flush does. If a
flush comes first, the position is compared again. If the skip comes first, the flush has lost the lease and changes
nothing. A death before the commit changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.errors import KafkaUnavailable, WrongUse
from prism_assets.domain.streams.topic import EARLIEST, LATEST
from prism_assets.domain.text import counted
from prism_assets.kafka.cluster import Offsets
from prism_assets.kafka.reader import Place
from prism_assets.metadata.kafka import skips
from prism_assets.metadata.kafka.lag import TopicLag
from prism_assets.metadata.kafka.partitions import STOPPED
from prism_assets.stages.context import StageContext
from prism_assets.stages.kafka.topics import ask_identity, choose_topic, is_same


@dataclass(frozen=True, kw_only=True)
class SkipReport:
    """The offsets that were skipped."""

    table: str
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    reason: str
    """Who decided, and why."""

    def __str__(self) -> str:
        where = f"{self.table}: partition {self.partition} of {self.topic}"
        if self.from_offset == self.to_offset:
            return f"{where} goes on at offset {self.to_offset}; nothing was skipped"
        count = counted(self.to_offset - self.from_offset, "offset")
        return f"{where} goes on at offset {self.to_offset}; {count} from {self.from_offset} on were skipped"


def run_skip(
    context: StageContext,
    table: str,
    *,
    partition: int,
    to: str,
    reason: str,
    topic: str | None = None,
) -> SkipReport:
    """Moves the position to `to`: earliest, latest, or an offset. Raises WrongUse for a place that cannot be read.

    A worker that reads the partition drops its messages, and any worker takes the partition then.
    """
    chosen = choose_topic(context, table, topic)
    assert chosen.topic_pk is not None
    bounds = _ask(context, chosen, partition)
    target = _target(to, bounds)
    with context.database.begin() as connection:
        locked = skips.lock_partition(connection, chosen.topic_pk, partition)
        if locked is None:
            raise WrongUse(f"no partition {partition} of {chosen.url} is registered. Nothing was done")
        _check(target, bounds, locked.next_offset, is_stopped=locked.state == STOPPED)
        skips.skip(connection, chosen.topic_pk, partition, target, reason)
    return SkipReport(
        table=table,
        topic=chosen.url,
        partition=partition,
        from_offset=locked.next_offset,
        to_offset=target,
        reason=reason,
    )


def _ask(context: StageContext, topic: TopicLag, partition: int) -> Offsets:
    """Returns the bounds of the partition in the registered topic. Offsets of another topic would mean nothing."""
    cluster = context.kafka.of(topic.cluster)
    identity = ask_identity(cluster, topic)
    if not is_same(topic, identity):
        raise WrongUse(
            f"{topic.url} is another topic than the one that was read: `prism kafka restart` begins it. Nothing was "
            "done"
        )
    if not 0 <= partition < identity.partitions:
        raise WrongUse(f"{topic.url} has {counted(identity.partitions, 'partition')}, from 0 on. Nothing was done")
    place = Place(topic.topic, partition)
    bounds = cluster.offsets([place]).get(place)
    if bounds is None:
        raise KafkaUnavailable(f"no broker tells the offsets of partition {partition} of {topic.url}: try again later")
    return bounds


def _target(to: str, bounds: Offsets) -> int:
    if to == EARLIEST:
        return bounds.low
    if to == LATEST:
        return bounds.stable
    if not to.isdigit():
        raise WrongUse(f"--to {to} is no place: write earliest, latest, or an offset. Nothing was done")
    target = int(to)
    if not bounds.low <= target <= bounds.stable:
        raise WrongUse(
            f"--to {to} is outside of the offsets that the brokers have, {bounds.low} to {bounds.stable}. Nothing was "
            "done"
        )
    return target


def _check(target: int, bounds: Offsets, position: int, *, is_stopped: bool) -> None:
    """Refuses a way back: offsets before the position have been read, and would become rows twice."""
    if is_stopped and bounds.stable < position:
        raise WrongUse(
            f"the log ends at offset {bounds.stable}, before the position {position}, as after a truncation: its new "
            "messages have offsets that were read already. Wait until the log is longer, or create the topic again "
            "and `prism kafka restart`. Nothing was done"
        )
    if target < position:
        raise WrongUse(f"the position is {position}, and it never moves back, to {target}. Nothing was done")
    if target == position and not is_stopped:
        raise WrongUse(f"the position is {position} already. Nothing was done")
