"""`prism iceberg`: publishes tables as Iceberg, says how they are, and mends what others did to them."""

from __future__ import annotations

from typing import Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Force, Json, Now, Tables, fail_if, open_context, read_clock, read_day
from prism_assets.cli.table_names import takes_table, takes_tables

iceberg_app = typer.Typer(help="The same objects as Iceberg tables.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="schema.table")]


@iceberg_app.command("plan")
@takes_tables
def plan(table: Tables = None, now: Now = None, force: Force = False, as_json: Json = False) -> None:
    """Says what the next commit to each table would change, day by day. Writes nothing."""
    from prism_assets.stages.iceberg.plan import preview

    found = preview(open_context(as_json), now=read_clock(now, force), names=table)
    console.show_lines(found, [line for item in found for line in item.lines], as_json=as_json)


@iceberg_app.command("publish")
@takes_tables
def publish(table: Tables = None, now: Now = None, force: Force = False, as_json: Json = False) -> None:
    """Has each table list what PostgreSQL says, at once, by one commit each."""
    _publish(table, now, force, as_json)


@iceberg_app.command("optimize")
@takes_tables
def optimize(
    table: Tables = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be done and change nothing.")] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Publishes, and also joins the manifests of closed days, keeps tags and expires snapshots."""
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
    """Rewrites merged objects whose timestamps are in milliseconds, so that their days can be shown."""
    from prism_assets.stages.iceberg.adopt import run_adopt

    report = run_adopt(open_context(as_json), table, since=read_day(since))
    console.show_report(report, str(report), as_json=as_json)
    fail_if(report.errors)


@iceberg_app.command("restore")
@takes_table
def restore(table: Name, now: Now = None, force: Force = False, as_json: Json = False) -> None:
    """Takes back what others committed to a table, also where its file says `on_foreign: stop`."""
    _publish([table], now, force, as_json, restore=True)


@iceberg_app.command("register")
@takes_table
def register(
    table: Name,
    anew: Annotated[
        bool, typer.Option("--anew", help="Make ours anew over the same objects; its snapshots are lost.")
    ] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Has the catalog name the published table again, in place of one that somebody made under its name."""
    _publish([table], now, force, as_json, register=True, anew=anew)


@iceberg_app.command("status")
@takes_tables
def status(table: Tables = None, as_json: Json = False) -> None:
    """Says of each table its head, how far it is behind, its health, and what helps."""
    from prism_assets.stages.iceberg.status import read_iceberg_status

    found = read_iceberg_status(open_context(as_json), table)
    console.show_iceberg_status(found, as_json=as_json)
    fail_if([f"{item.table}: {item.error}" for item in found if item.error])


@iceberg_app.command("history")
@takes_table
def history(
    table: Name,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many commits, the newest first.")] = 20,
    as_json: Json = False,
) -> None:
    """Lists the commits to a table."""
    from prism_assets.stages.iceberg.status import read_history

    console.show_iceberg_history(read_history(open_context(as_json), table, limit), as_json=as_json)


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
    console.show_iceberg(report, as_json=as_json)
    fail_if(report.errors)
