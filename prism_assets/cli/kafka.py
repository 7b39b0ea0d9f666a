"""`prism kafka`: shows the positions in topics, skips offsets, and restarts recreated topics."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Json, Tables, open_context
from prism_assets.cli.table_names import takes_table, takes_tables
from prism_assets.cli.topic_reports import show_topics
from prism_assets.domain.errors import WrongUse

kafka_app = typer.Typer(no_args_is_help=True, help="Shows positions in topics, skips offsets, restarts topics.")

Name = Annotated[str, typer.Argument(help="schema.table, such as log.events.")]
TopicName = Annotated[str | None, typer.Option("--topic", help="The topic, where the table reads several.")]


@kafka_app.command()
@takes_tables
def status(table: Tables = None, as_json: Json = False) -> None:
    """Shows each partition: offsets, lag, worker, state. Asks the brokers, too, where they answer."""
    from prism_assets.stages.kafka.status import read_topic_status

    context = open_context(as_json)
    show_topics(read_topic_status(context, table), as_json=as_json)


@kafka_app.command()
@takes_table
def skip(
    table: Name,
    partition: Annotated[int, typer.Option("--partition", min=0, help="The number of the partition.")],
    to: Annotated[str, typer.Option("--to", help="Where to go on: earliest, latest, or an offset.")],
    reason: Annotated[str, typer.Option("--reason", help="Why. It stays on record, with your name.")],
    topic: TopicName = None,
    as_json: Json = False,
) -> None:
    """Goes on at a later offset, and records the offsets between. They are never read."""
    from prism_assets.stages.kafka.skip import run_skip

    if not reason.strip():
        raise WrongUse("--reason says nothing: write why these offsets are not read. Nothing was done")
    context = open_context(as_json)
    report = run_skip(context, table, partition=partition, to=to, reason=f"{_person()}: {reason.strip()}", topic=topic)
    console.show_report(report, str(report), as_json=as_json)


@kafka_app.command()
@takes_table
def restart(
    table: Name,
    start: Annotated[str, typer.Option("--from", help="Where to begin: earliest, latest, or a time.")],
    topic: TopicName = None,
    as_json: Json = False,
) -> None:
    """Begins with a topic that was created again under its name. Rows of the former topic stay."""
    from prism_assets.stages.kafka.restart import run_restart

    report = run_restart(open_context(as_json), table, start=start, topic=topic)
    console.show_report(report, str(report), as_json=as_json)


def _person() -> str:
    """Returns user and host for the record. A user of a container may have no name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}"
