"""`prism adopt`: audits an installation of the published design, and writes table files for its tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Json, Tables, open_context, read_day
from prism_assets.domain.errors import WrongUse
from prism_assets.domain.text import counted

if TYPE_CHECKING:
    from prism_assets.stages.adopt.audit import Installation

adopt_app = typer.Typer(
    name="adopt",
    help="Takes over an installation of the published design of Prism. Changes nothing there.",
    no_args_is_help=True,
)

_Database = Annotated[
    str | None,
    typer.Option(
        "--database",
        envvar="PRISM_ADOPT_DATABASE_URL",
        help="Its PostgreSQL: postgresql+psycopg://user@host:port/database.",
    ),
]


def _installation(database: str | None, lake: str) -> Installation:
    from prism_assets.metadata.database import Database
    from prism_assets.stages.adopt.audit import Installation

    if not database:
        raise WrongUse("--database, or PRISM_ADOPT_DATABASE_URL, names the PostgreSQL of the former installation")
    bucket, _, prefix = lake.removeprefix("s3://").partition("/")
    if not lake.startswith("s3://") or not bucket or (prefix and not prefix.endswith("/")):
        raise WrongUse(f"--lake {lake} must look like s3://bucket/ or s3://bucket/prefix/")
    return Installation(database=Database(database), bucket=bucket, prefix=prefix)


@adopt_app.command()
def audit(
    lake: Annotated[str, typer.Option("--lake", help="Bucket and prefix of its objects: s3://bucket/prefix/.")],
    database: _Database = None,
    table: Tables = None,
    as_json: Json = False,
) -> None:
    """Looks for rows that can never be read, gaps, wrong lengths, and objects without rows. Status 1: some found."""
    from prism_assets.stages.adopt.audit import run_audit

    report = run_audit(open_context(as_json), _installation(database, lake), table)
    lines = [*map(str, report.findings), report.describe()]
    console.show_report(report, "\n".join(lines), as_json=as_json)
    if report.findings:
        raise typer.Exit(1)


@adopt_app.command()
def tables(
    into: Annotated[Path, typer.Option("--into", help="An empty folder for the table files.")],
    database: _Database = None,
    since: Annotated[
        str | None, typer.Option("--since", help="The first day that the new tables read by themselves.")
    ] = None,
    table: Tables = None,
    as_json: Json = False,
) -> None:
    """Writes a table file for each table, from its streams and columns."""
    from prism_assets.stages.adopt.tables import write_tables

    written = write_tables(_installation(database, "s3://none/"), into, table, read_day(since))
    lines = [f"{item.path}{''.join(f'{chr(10)}  {note}' for note in item.notes)}" for item in written]
    lines.append(f"{counted(len(written), 'table file')} written: read them, then `prism table apply {into} --dry-run`")
    console.show_report(written, "\n".join(lines), as_json=as_json)
