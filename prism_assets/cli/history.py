"""`prism history`: brings old objects into a table, after the objects of today."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Force, Json, Now, fail_if, open_context, read_clock, read_day, running_clock
from prism_assets.cli.table_names import takes_table
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.text import counted

_NICENESS = 10


@takes_table
def history(
    table: Annotated[str, typer.Argument(help="schema.table, such as log.events.")],
    first: Annotated[
        str | None, typer.Option("--from", help="The first day of keys; leave it out to go on with an earlier run.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--until", help="The last day; by default the one before `since`, or yesterday.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print days, objects and bytes, and change nothing.")
    ] = False,
    cancel: Annotated[
        bool, typer.Option("--cancel", help="End the history: leave objects out that no batch has begun.")
    ] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Registers objects with old days in their keys, and converts them while no object of today waits.

    Run it again after a death or an error: it goes on. `prism status` shows the rest.
    """
    from prism_assets.stages.history.plan import choose_table, notes
    from prism_assets.stages.history.run import cancel_history, preview_history, run_history

    context, clock = open_context(as_json), running_clock(now, force)
    begin, end = read_day(first), read_day(last)
    if begin is None and (end is not None or dry_run):
        raise WrongUse("--from names the first day to bring in: write it like --from 2026-01-01")
    if cancel:
        ended = cancel_history(context, table)
        told = [f"{counted(ended.forgotten, 'object')} forgotten"]
        if ended.given_back:
            told.append(
                f"{counted(ended.given_back, 'object waits', 'objects wait')} for Stream, because no `since` leaves "
                "their days out"
            )
        console.show_report(ended, "; ".join(told), as_json=as_json)
        return
    if dry_run and begin is not None:
        plan = preview_history(context, table, begin, end, read_clock(now, force))
        lines = [f"{day.day}: {counted(day.objects, 'object')}, {day.bytes:,} bytes" for day in plan.days]
        told = [*lines, plan.describe(), *notes(choose_table(context, table))]
        console.show_report(plan, "\n".join(told), as_json=as_json)
        return
    os.nice(_NICENESS)  # on one machine, processes with the objects of today come first
    report = run_history(context, table, first=begin, last=end, clock=clock)
    console.show_report(report, report.describe(), as_json=as_json)
    fail_if(report.errors)
