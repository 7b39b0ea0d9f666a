"""Ends a stream's topic by decision of a person. Workers then begin with the recreated topic."""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.streams.topic import EARLIEST, LATEST, time_of_start
from prism_assets.metadata.kafka import skips
from prism_assets.stages.context import StageContext
from prism_assets.stages.kafka.topics import ask_identity, choose_topic, is_same


@dataclass(frozen=True, kw_only=True)
class RestartReport:
    """The ended topic and its successor."""

    table: str
    topic: str
    ended_id: str
    topic_id: str
    start: str

    def __str__(self) -> str:
        return (
            f"{self.table}: the topic {self.ended_id} of {self.topic} has ended; a worker begins {self.topic_id} at "
            f"{self.start}. Rows of the ended one stay"
        )


def run_restart(context: StageContext, table: str, *, start: str, topic: str | None = None) -> RestartReport:
    """Ends the registered topic. The next worker registers the topic of its name, and begins at `start`.

    Refuses the current topic, because all messages would become rows twice. A death before the commit
    changes nothing.
    """
    _check_start(start)
    chosen = choose_topic(context, table, topic)
    assert chosen.topic_pk is not None
    identity = ask_identity(context.kafka.of(chosen.cluster), chosen)
    if is_same(chosen, identity):
        raise WrongUse(
            f"{chosen.url} is the topic that is read already ({chosen.topic_id}): its messages would become rows "
            "twice. `prism kafka skip` moves forward in it. Nothing was done"
        )
    with context.database.begin() as connection:
        if not skips.end_topic(connection, chosen.topic_pk, start):
            raise WrongUse(f"another command has ended the topic of {chosen.url} meanwhile. Nothing was done")
    return RestartReport(
        table=table,
        topic=chosen.url,
        ended_id=str(chosen.topic_id),
        topic_id=identity.topic_id,
        start=start,
    )


def _check_start(start: str) -> None:
    if start in (EARLIEST, LATEST):
        return
    try:
        time_of_start(start)
    except ValueError:
        raise WrongUse(
            f"{start} is no start: write earliest, latest, or a time such as 2026-03-01T00:00:00Z. Nothing was done"
        ) from None
