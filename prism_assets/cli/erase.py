"""`prism erase`: takes rows out of the lake for good, and proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Json, fail_if, open_context, read_clock, running_clock
from prism_assets.cli.table_names import takes_table
from prism_assets.domain.errors import WrongUse

if TYPE_CHECKING:
    from prism_assets.stages.context import StageContext

_NOTHING_SAID = (
    "say which rows are to be erased, such as `prism erase log.events --where 'user_id = 42'`; or --status, "
    "--continue, --close-open-days, --sources, --withdraw"
)


@takes_table
def erase(
    table: Annotated[
        str | None, typer.Argument(help="schema.table; all tables by default with --status and --continue.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", help="An SQL expression over columns, true for the rows to erase.")
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows", help="The number of matching rows, typed again; needed for more than a tenth of a table."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print matching rows by day, and change nothing.")] = False,
    go_on: Annotated[bool, typer.Option("--continue", help="Continue erasures that are not proved yet.")] = False,
    close_days: Annotated[
        bool, typer.Option("--close-open-days", help="Close open days with such rows now, and erase their rows, too.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Show the state and the proof of each erasure.")] = False,
    sources: Annotated[
        int | None,
        typer.Option("--sources", help="List staging objects that hold rows of this erasure, or may hold some."),
    ] = None,
    withdraw: Annotated[
        str | None,
        typer.Option("--withdraw", help="Forget an erasure that a restored PostgreSQL lacks, by its HMAC."),
    ] = None,
    now: Annotated[
        str | None, typer.Option("--now", help="The clock for leases, such as 2026-11-21T00:10:00Z.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Accept a --now that is more than two years away.")] = False,
    as_json: Json = False,
) -> None:
    """Erases matching rows of a table from every object of the lake, for ever, and proves it."""
    from prism_assets.stages.close_open_days import close_open_days
    from prism_assets.stages.erase import run
    from prism_assets.stages.erase.plan import plan_erasure
    from prism_assets.stages.erase.rules import withdraw_erasure

    go_on = go_on or (close_days and where is None)
    said = [where is not None, go_on, status, sources is not None, withdraw is not None]
    if sum(said) != 1 or (table is None and (where is not None or withdraw is not None)):
        raise WrongUse(_NOTHING_SAID)
    if dry_run and where is None:
        raise WrongUse("--dry-run prints the rows that --where matches: add --where; nothing was changed")
    context = open_context(as_json)
    names = None if table is None else [table]
    clock = None if now is None else read_clock(now, force)
    if sources is not None:
        found = run.sources_of(context, sources)
        console.show_lines(found, [url if certain else f"{url} (perhaps)" for url, certain in found], as_json=as_json)
    elif withdraw is not None and table is not None:
        gone = withdraw_erasure(context, table, withdraw)
        time = f"{gone.record.create_time:%Y-%m-%d %H:%M}Z"
        console.show_lines([gone], [f"{table}: the erasure of {time} is not to be repeated"], as_json=as_json)
    elif status:
        _show_status(context, table, as_json=as_json)
    elif where is not None and table is not None and dry_run:
        plan = plan_erasure(context, table, where)
        console.show_lines([plan], plan.sentences, as_json=as_json)
    else:
        if where is not None and table is not None:
            report = run.run_erase(context, table, where, rows=rows, now=clock)
        elif not close_days:
            report = run.continue_erasures(context, names=names, now=clock, forced=True)
        if close_days:
            closed = close_open_days(context, names, clock=running_clock(now, force), now=clock)
            report = closed if where is None else closed.only(report.erasures)
        console.show_erasures(report, as_json=as_json)
        fail_if((*report.errors, *report.left_for_a_person))


def _show_status(context: StageContext, table: str | None, *, as_json: bool) -> None:
    """Prints erasures with their proofs, of one table or of all; fails for those that PostgreSQL lacks."""
    from prism_assets.stages.erase.plan import erased_together
    from prism_assets.stages.erase.report import read_dropped_erasures, read_erasures
    from prism_assets.stages.erasure_records import compare_erasures, load_held_names

    compare_erasures(context)
    known = read_erasures(context, erased_together(context, None if table is None else [table]))
    if table is None:
        known = (*read_dropped_erasures(context), *known)
    held = load_held_names(context)
    lacking = tuple(f"{name}: {item}" for name, items in held.items() if table in (None, name) for item in items)
    console.show_lines(known, [*lacking, *map(str, known)] or ["nothing was ever erased"], as_json=as_json)
    fail_if(lacking)
