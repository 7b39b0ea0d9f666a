"""`prism ducklake`: lets clients of DuckLake in, and prints the lines that they paste."""

from __future__ import annotations

from typing import Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Json, open_context

ducklake_app = typer.Typer(
    help="Shows the same objects as a DuckLake, readable from the commit on.", no_args_is_help=True
)


@ducklake_app.command("sql")
def sql(
    with_secrets: Annotated[
        bool, typer.Option("--with-secrets", help="Print passwords and keys of this environment, too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Prints lines to paste into DuckDB: the key of S3, the ATTACH, and a query."""
    from prism_assets.reading.ducklake import example, session_lines

    context = open_context(as_json)
    lines = session_lines(context.settings, with_secrets=with_secrets)
    names = [str(table.name) for table in context.choose_tables(None) if table.ducklake]
    if as_json:
        console.print_json([*lines, example(names)])
    else:
        typer.echo("\n".join([*lines, example(names)]))  # as they are: a line that is broken cannot be pasted


@ducklake_app.command("role")
def role(as_json: Json = False) -> None:
    """Prints the script that lets readers in; an administrator of PostgreSQL runs it once: `… | psql -v password=…`."""
    from prism_assets.metadata.iceberg.lake_role import role_script

    if as_json:
        console.print_json({"script": role_script()})
    else:
        typer.echo(role_script())
