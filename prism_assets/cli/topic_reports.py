"""Prints topics of Kafka with their partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from prism_assets.console import escape, out, print_json, silent_for

if TYPE_CHECKING:
    from prism_assets.stages.kafka.status import TopicStatus


def show_topics(topics: Sequence[TopicStatus], *, as_json: bool) -> None:
    """Prints a table of partitions for each topic, with errors below it."""
    if as_json:
        print_json(topics)
        return
    for topic in topics:
        out.print(escape(f"{topic.table}: {topic.url}, id {topic.topic_id or 'not known yet'}"))
        if topic.partitions:
            out.print(_partitions_of(topic))
        elif not topic.last_error:
            out.print("    no worker has begun to read it")
        for error in (topic.last_error, *(item.last_error for item in topic.partitions)):
            if error:
                out.print(escape(f"    {error}"))
        if topic.not_asked:
            out.print(escape(f"    ends are those that workers saw last: {topic.not_asked}"))
    if not topics:
        out.print("no table reads a topic")


def _partitions_of(topic: TopicStatus) -> Table:
    grid = Table("partition", box=None, pad_edge=False)
    for heading in ("next", "last stable", "lag", "seconds"):
        grid.add_column(heading, justify="right")
    for heading in ("state", "worker"):
        grid.add_column(heading)
    for item in topic.partitions:
        worker = f"{item.worker}{silent_for(item.silent_seconds)}" if item.worker else "-"
        figures = (item.next_offset, item.last_stable_offset, item.lag_offsets)
        grid.add_row(
            str(item.partition),
            *("-" if figure is None else f"{figure:,}" for figure in figures),
            "-" if item.lag_seconds is None else f"{item.lag_seconds:,.0f}",
            item.state,
            escape(worker),
        )
    return grid
