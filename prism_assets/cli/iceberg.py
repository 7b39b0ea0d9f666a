"""`prism iceberg`: publishes tables as Iceberg, shows their health, and takes back commits of others."""

from __future__ import annotations

from typing import Annotated

import typer

from prism_assets import console
from prism_assets.cli.iceberg_reports import show_iceberg, show_iceberg_history, show_iceberg_status
from prism_assets.cli.options import Force, Json, Now, Tables, fail_if, open_context, read_clock, read_day
from prism_assets.cli.table_names import takes_table, takes_tables

iceberg_app = typer.Typer(help="Publishes the same objects as Iceberg tables.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="schema.table, such as log.events.")]


@iceberg_app.command("plan")
@takes_tables
def plan(table: Tables = None, now: Now = None, force: Force = False, as_json: Json = False) -> None:
    """Prints the changes of the next commit to each table, day by day. Writes nothing."""
    from prism_assets.stages.iceberg.plan import preview

    found = preview(open_context(as_json), now=read_clock(now, force), names=table)
    console.show_lines(found, [line for item in found for line in item.lines], as_json=as_json)


@iceberg_app.command("publish")
@takes_tables
def publish(table: Tables = None, now: Now = None, force: Force = False, as_json: Json = False) -> None:
    """Commits new and changed days of each table now, one commit for each table."""
    _publish(table, now, force, as_json)


@iceberg_app.command("optimize")
@takes_tables
def optimize(
    table: Tables = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Publishes, joins the manifests of closed days, sets tags, and expires snapshots."""
    from prism_assets.stages.iceberg.plan import preview

    if dry_run:
        found = preview(open_context(as_json), now=read_clock(now, force), names=table, optimize=True)
        console.show_lines(found, [line for item in found for line in item.lines], as_json=as_json)
        return
    _publish(table, now, force, as_json, optimize=True)


@iceberg_app.command("adopt")
@takes_table
def adopt(
    table: Name,
    since: Annotated[str | None, typer.Option("--since", help="Only days from this one on.")] = None,
    as_json: Json = False,
) -> None:
    """Rewrites merged objects with timestamps in milliseconds, so that Iceberg can list their days."""
    from prism_assets.stages.iceberg.adopt import run_adopt

    report = run_adopt(open_context(as_json), table, since=read_day(since))
    console.show_report(report, str(report), as_json=as_json)
    fail_if(report.errors)


@iceberg_app.command("restore")
@takes_table
def restore(table: Name, now: Now = None, force: Force = False, as_json: Json = False) -> None:
    """Takes back commits of others to a table, even with `on_foreign: stop` in its file."""
    _publish([table], now, force, as_json, restore=True)


@iceberg_app.command("register")
@takes_table
def register(
    table: Name,
    anew: Annotated[
        bool, typer.Option("--anew", help="Make the table again over the same objects; its snapshots are lost.")
    ] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Registers the published table in the catalog again, in place of another table of its name."""
    _publish([table], now, force, as_json, register=True, anew=anew)


@iceberg_app.command("status")
@takes_tables
def status(table: Tables = None, as_json: Json = False) -> None:
    """Shows the head, the delay and the health of each table, with the remedy for each complaint."""
    from prism_assets.stages.iceberg.status import read_iceberg_status

    found = read_iceberg_status(open_context(as_json), table)
    show_iceberg_status(found, as_json=as_json)
    fail_if([f"{item.table}: {item.error}" for item in found if item.error])


@iceberg_app.command("history")
@takes_table
def history(
    table: Name,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many commits, the newest first.")] = 20,
    as_json: Json = False,
) -> None:
    """Lists the commits to a table, the newest first."""
    from prism_assets.stages.iceberg.status import read_history

    show_iceberg_history(read_history(open_context(as_json), table, limit), as_json=as_json)


def _publish(
    names: list[str] | None,
    now: str | None,
    force: bool,
    as_json: bool,
    *,
    restore: bool = False,
    optimize: bool = False,
    register: bool = False,
    anew: bool = False,
) -> None:
    from prism_assets.stages.iceberg.run import run_iceberg
    from prism_assets.stages.leases import takeover_seconds

    context = open_context(as_json)
    report = run_iceberg(
        context,
        now=read_clock(now, force),
        names=names,
        ignore_pace=True,
        restore=restore,
        optimize=optimize,
        register=register,
        anew=anew,
        wait_seconds=takeover_seconds(context),
    )
    show_iceberg(report, as_json=as_json)
    fail_if(report.errors)
