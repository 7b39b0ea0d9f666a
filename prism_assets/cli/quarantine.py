"""`prism quarantine`: the lines that were set aside: which, what they are, and those that are rows by now."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Force, Json, Now, Tables, fail_if, open_context, read_clock, read_day
from prism_assets.cli.table_names import takes_table, takes_tables

quarantine_app = typer.Typer(help="Lines that were set aside.", no_args_is_help=True)


@quarantine_app.command("list")
@takes_tables
def quarantine_list(
    table: Tables = None,
    day: Annotated[
        str | None, typer.Option("--date", help="Only what was set aside on this day (UTC), such as 2026-11-20.")
    ] = None,
    reason: Annotated[
        list[str] | None, typer.Option("--reason", help="Only this reason, such as bad_json; may be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="How many lots, of the newest objects first.")] = 50,
    as_json: Json = False,
) -> None:
    """Lists what was set aside, by staging object and reason."""
    from prism_assets.metadata.quarantine import QuarantineFilter, list_quarantine

    wanted_day, context = read_day(day), open_context(as_json)
    wanted = QuarantineFilter(table_ids=context.choose_ids(table), reasons=reason, day=wanted_day, limit=limit)
    with context.database.begin() as connection:
        rows = list_quarantine(connection, wanted)
    everything = table is None and reason is None and day is None
    console.show_quarantine(rows, limit=limit, everything=everything, as_json=as_json)


@quarantine_app.command("show")
def quarantine_show(
    staging_object_id: Annotated[int, typer.Argument(help="As `prism quarantine list` shows it.")],
    as_json: Json = False,
) -> None:
    """Prints the lines themselves, as JSON Lines."""
    from prism_assets.stages.quarantine import as_document, quarantined_lines

    pieces = quarantined_lines(open_context(True), staging_object_id)
    for piece in as_document(pieces) if as_json else pieces:
        sys.stdout.buffer.write(piece)


@quarantine_app.command("replay")
@takes_table
def quarantine_replay(
    table: Annotated[str, typer.Argument(help="schema.table")],
    reason: Annotated[
        list[str] | None,
        typer.Option(
            "--reason",
            help="Only objects with lines for this reason, and those that rebuilds left lines of; may be repeated.",
        ),
    ] = None,
    without_missing: Annotated[
        bool,
        typer.Option("--without-missing", help="Leave the rows of staging objects that are gone as they are."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done and change nothing.")] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Makes rows of lines in quarantine that are such under the definition in force: objects without rows are
    converted anew, and the closed days of others are rebuilt.
    """
    from prism_assets.stages.replay.run import run_replay

    context, clock = open_context(as_json), read_clock(now, force)
    report = run_replay(context, table, reasons=reason, without_missing=without_missing, dry_run=dry_run, now=clock)
    console.show_report(report, "\n".join(report.sentences), as_json=as_json)
    fail_if(report.errors)
