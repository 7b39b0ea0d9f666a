"""`prism rebuild`: makes days again from staging objects, and join tables from their changes."""

from __future__ import annotations

from typing import Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Force, Json, Now, fail_if, open_context, read_clock, read_day
from prism_assets.cli.table_names import takes_table


@takes_table
def rebuild(
    table: Annotated[str, typer.Argument(help="schema.table, such as log.events.")],
    day: Annotated[
        str | None,
        typer.Option("--date", help="The event date, such as 2026-11-20; leave it out for a join table."),
    ] = None,
    since: Annotated[str | None, typer.Option("--since", help="Rebuild all days from this one up to --date.")] = None,
    without_missing: Annotated[
        bool,
        typer.Option(
            "--without-missing",
            help="Keep rows of deleted staging objects as they are.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plans and change nothing.")] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Converts staging objects of closed days again under the current definition, and replaces each day in one step.

    Records of a join table are made again from all changes of its log, and replace the records that differ.
    """
    from prism_assets.stages.rebuild.report import unmade
    from prism_assets.stages.rebuild.run import preview_days, preview_records, run_rebuild

    context, clock = open_context(as_json), read_clock(now, force)
    wanted, first = read_day(day), read_day(since)
    if dry_run:
        plans = (
            preview_days(context, table, day=wanted, since=first, now=clock)
            if wanted
            else preview_records(context, table, since=first, without_missing=without_missing)
        )
        console.show_lines(plans, list(map(str, plans)), as_json=as_json)
        return
    report = run_rebuild(context, table, day=wanted, since=first, without_missing=without_missing, now=clock)
    missing = [f"{day.date}: {url} is gone" for day in report.days for url in day.missing]
    told = [str(day) for day in report.days if not day.skipped]
    told += [str(item) for item in report.records if not item.skipped]
    for item in report.records:
        told += [*item.different, *item.unread, *unmade(item.changes_from)]
    console.show_report(report, "\n".join([*told, *missing]) or "nothing was rebuilt", as_json=as_json)
    fail_if(report.errors)
