"""Shares the partitions of topics out among the live workers. A silent worker loses its share to others."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from prism_assets.domain.live_shares import share_out
from prism_assets.metadata.kafka.partitions import KnownPartition
from prism_assets.metadata.leases import Presence


@dataclass(frozen=True)
class Share:
    """The partitions that a worker should read, each as topic and number."""

    own: frozenset[tuple[int, int]]
    unattended: frozenset[tuple[int, int]]
    """Partitions of other workers, unread for two leases. These workers may have no connection to Kafka."""
    idle: frozenset[str]
    """The workers of unattended partitions."""

    @property
    def wanted(self) -> frozenset[tuple[int, int]]:
        """The partitions to take where they are free."""
        return self.own | self.unattended


def share_partitions(
    partitions: Sequence[KnownPartition],
    tables: Mapping[int, int],
    presences: Collection[Presence],
    worker: str,
    lease_seconds: float,
    idle: Collection[str] = (),
) -> Share:
    """Returns the share of one worker. `tables` has the table of each topic.

    Every worker computes the same shares from the same rows. Workers with a fresh presence count, but for `idle` ones.
    Idle workers left partitions unattended; with a share, others would take and release these partitions in turn.
    """
    living = {
        presence.holder.worker: presence.wanted
        for presence in presences
        if presence.holder.silent_seconds < lease_seconds and presence.holder.worker not in idle
    }
    living.setdefault(worker, None)
    names = sorted(living)
    free = [item for item in partitions if not item.is_stopped]
    wanted = {
        number: [
            place
            for place, item in enumerate(free)
            if (tables_of := living[name]) is None or tables[item.topic_pk] in tables_of
        ]
        for number, name in enumerate(names)
    }
    held = {
        place: names.index(item.worker)
        for place, item in enumerate(free)
        if item.worker in living and (item.silent_seconds or 0.0) < lease_seconds
    }
    owners = share_out(wanted, held)
    own = {place for place, number in owners.items() if names[number] == worker}
    unattended = {place for place in owners.keys() - own if (free[place].silent_seconds or 0.0) > 2 * lease_seconds}
    own_places, unattended_places = (
        frozenset((free[place].topic_pk, free[place].partition) for place in found) for found in (own, unattended)
    )
    return Share(own_places, unattended_places, frozenset(names[owners[place]] for place in unattended))
