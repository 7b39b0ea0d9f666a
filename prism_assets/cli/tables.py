"""`prism table`: table files, from a sample of logs to what is in force."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Force, Json, Now, open_context, read_clock
from prism_assets.domain.errors import WrongUse
from prism_assets.settings import LocationSettings, load, load_reader_settings

table_app = typer.Typer(help="Table definitions.", no_args_is_help=True)


@table_app.command("apply")
def table_apply(
    folder: Annotated[Path | None, typer.Argument(help="Folder of table files (default: PRISM_TABLES_DIR).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    restore_marker: Annotated[
        bool, typer.Option("--restore-marker", help="Also put back the lake's marker, if it was deleted.")
    ] = False,
    now: Now = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Creates and extends tables and streams as the table files say; the first time, also takes the lake."""
    from prism_assets.stages.apply import run_apply

    context = open_context(as_json)
    plan = run_apply(
        context,
        folder or context.settings.tables_dir,
        read_clock(now, force),
        dry_run=dry_run,
        restore_marker=restore_marker,
    )
    console.show_apply(plan, dry_run=dry_run, as_json=as_json)


@table_app.command("list")
def table_list(as_json: Json = False) -> None:
    """Lists the tables in force."""
    console.show_tables(open_context(as_json).choose_tables(None), as_json=as_json)


@table_app.command("show")
def table_show(name: Annotated[str, typer.Argument(help="schema.table")], as_json: Json = False) -> None:
    """Shows the columns and streams of one table."""
    console.show_table(open_context(as_json).choose_tables([name])[0], as_json=as_json)


@table_app.command("init")
def table_init(
    name: Annotated[str, typer.Argument(help="schema.table of the new table.")],
    sample: Annotated[str, typer.Option("--sample", help="A file, a folder, or s3://bucket/prefix/ with JSON lines.")],
    url: Annotated[
        str | None,
        typer.Option("--url", help="Where objects will arrive (default: where a sample in S3 lies)."),
    ] = None,
    tables: Annotated[Path | None, typer.Option("--tables", help="Folder of table files (PRISM_TABLES_DIR).")] = None,
    show: Annotated[bool, typer.Option("--print", help="Print the draft and write no file.")] = False,
    as_json: Json = False,
) -> None:
    """Drafts a table file from a sample of the logs: what each key holds, and a type that loses nothing of it."""
    from prism_assets.drafting.draft import draft_file

    if show and tables:
        raise WrongUse("--print writes no file: leave --tables out")
    folder = None if show else tables or load(LocationSettings).tables_dir
    now = datetime.now(timezone.utc)
    draft = draft_file(load_reader_settings().store, name, sample, url=url, folder=folder, now=now)
    console.show_draft(draft, as_json=as_json)
