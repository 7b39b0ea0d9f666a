"""`prism quarantine`: lists, shows and replays lines that are no rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Force, Json, Now, Tables, fail_if, open_context, read_clock, read_day
from prism_assets.cli.table_names import takes_table, takes_tables
from prism_assets.domain.text import counted

if TYPE_CHECKING:
    from prism_assets.metadata.intake.quarantine import QuarantineRow

quarantine_app = typer.Typer(help="Lists, shows and replays lines that are no rows.", no_args_is_help=True)


@quarantine_app.command("list")
@takes_tables
def quarantine_list(
    table: Tables = None,
    day: Annotated[
        str | None,
        typer.Option("--date", help="Only lines of objects of this day of arrival (UTC), such as 2026-11-20."),
    ] = None,
    reason: Annotated[
        list[str] | None, typer.Option("--reason", help="Only this reason, such as bad_json. May be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Number of entries, the newest objects first.")] = 50,
    as_json: Json = False,
) -> None:
    """Lists quarantined lines by staging object and reason."""
    from prism_assets.metadata.intake.quarantine import QuarantineFilter, list_quarantine

    wanted_day, context = read_day(day), open_context(as_json)
    wanted = QuarantineFilter(table_ids=context.choose_ids(table), reasons=reason, day=wanted_day, limit=limit)
    with context.database.begin() as connection:
        rows = list_quarantine(connection, wanted)
    everything = table is None and reason is None and day is None
    _show_rows(rows, limit=limit, everything=everything, as_json=as_json)


@quarantine_app.command("show")
def quarantine_show(
    staging_object_id: Annotated[int, typer.Argument(help="The number of the object in `prism quarantine list`.")],
    as_json: Json = False,
) -> None:
    """Prints the quarantined lines of one object, as JSON Lines."""
    from prism_assets.stages.quarantine import as_document, quarantined_lines

    pieces = quarantined_lines(open_context(True), staging_object_id)
    for piece in as_document(pieces) if as_json else pieces:
        sys.stdout.buffer.write(piece)


@quarantine_app.command("replay")
@takes_table
def quarantine_replay(
    table: Annotated[str, typer.Argument(help="schema.table, such as log.events.")],
    reason: Annotated[
        list[str] | None,
        typer.Option(
            "--reason",
            help="Only objects with lines of this reason, and lines that rebuilds left. May be repeated.",
        ),
    ] = None,
    without_missing: Annotated[
        bool,
        typer.Option("--without-missing", help="Keep rows of deleted staging objects as they are."),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Makes rows of quarantined lines under the current definition.

    Objects without rows are converted again; closed days of other objects are rebuilt.
    """
    from prism_assets.stages.replay.run import run_replay

    context, clock = open_context(as_json), read_clock(now, force)
    report = run_replay(context, table, reasons=reason, without_missing=without_missing, dry_run=dry_run, now=clock)
    console.show_report(report, "\n".join(report.sentences), as_json=as_json)
    fail_if(report.errors)


def _show_rows(rows: Sequence[QuarantineRow], *, limit: int, everything: bool, as_json: bool) -> None:
    """Prints quarantined lots without their lines. Each origin is on a line of its own, unshortened."""
    if as_json:
        console.print_json(rows)
        return
    for row in rows:
        console.out.print(
            f"{row.table} [bold]{console.escape(row.reason)}[/bold]: {counted(row.line_count, 'line')}, "
            f"object {row.staging_object_id}, {row.create_time:%Y-%m-%d %H:%M}Z"
        )
        console.out.print(f"    s3://{console.escape(row.bucket)}/{console.escape(row.key)}")
    if not rows:
        console.out.print("nothing is in quarantine" if everything else "no such line is in quarantine")
    elif len(rows) == limit:
        console.out.print(f"these are the newest {limit}; --limit shows more, and --table, --date and --reason choose")
    if rows:
        console.out.print("`prism quarantine show OBJECT` prints the lines")
