"""`prism ducklake`: lets clients of DuckLake in, and prints the lines that they paste."""

from __future__ import annotations

from typing import Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Json, open_context
from prism_assets.domain.names import LAKE_READER

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
def role(
    grant: Annotated[
        bool, typer.Option("--grant", help="Grant the views to the role, as their owner, and print nothing else.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Prints the script that lets readers in; an administrator of PostgreSQL runs it once: `… | psql -v password=…`.

    An administrator who does not own the views, as on RDS, needs `--grant` afterwards.
    """
    from prism_assets.metadata.iceberg.lake_role import grant_views, role_script

    if grant:
        context = open_context(as_json)
        with context.database.begin() as connection:
            grant_views(connection)
        if as_json:
            console.print_json({"granted": LAKE_READER})
        else:
            typer.echo(f"{LAKE_READER} reads the views of this database")
    elif as_json:
        console.print_json({"script": role_script()})
    else:
        typer.echo(role_script())
