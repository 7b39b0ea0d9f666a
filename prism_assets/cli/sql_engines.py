"""`prism dbt` and `prism table ddl`: what dbt, Redshift and Athena need to know, from the table files alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Json
from prism_assets.cli.table_names import takes_tables
from prism_assets.cli.tables import table_app
from prism_assets.domain.errors import DefinitionError, WrongUse
from prism_assets.reading.sql_engines import SqlEngine, choose_shown, external_schemas, views
from prism_assets.settings import IcebergSettings, LocationSettings, load, load_reader_settings

if TYPE_CHECKING:
    from prism_assets.domain.tables.definition import TableDefinition

dbt_app = typer.Typer(help="Names the tables for dbt.", no_args_is_help=True)

Engine = Annotated[SqlEngine, typer.Option("--for", help="The engine that reads: redshift, athena or iceberg.")]
Named = Annotated[list[str] | None, typer.Option("--table", help="Only this schema.table. May be repeated.")]


@dbt_app.command("sources")
@takes_tables
def dbt_sources(engine: Engine, table: Named = None, as_json: Json = False) -> None:
    """Prints dbt sources with columns and freshness: `prism dbt sources --for athena > models/prism.yml`."""
    from prism_assets.reading.dbt_sources import as_yaml
    from prism_assets.reading.dbt_sources import dbt_sources as sources_of

    reader, iceberg = load_reader_settings(), load(IcebergSettings)
    properties = sources_of(engine, choose_shown(engine, _tables(), table), reader, iceberg)
    if as_json:
        console.print_json(properties)
    else:
        typer.echo(as_yaml(properties), nl=False)


@table_app.command("ddl")
@takes_tables
def table_ddl(
    engine: Engine,
    table: Named = None,
    role: Annotated[
        str | None,
        typer.Option("--role", help="For Redshift: ARN of the role that reads; else its default role."),
    ] = None,
    into: Annotated[
        str, typer.Option("--into", help="For Athena: database of the views; {schema} is the schema of the table.")
    ] = "{schema}_views",
    as_json: Json = False,
) -> None:
    """Prints statements for SQL engines: external schemas for Redshift, views for Athena. It executes nothing."""
    if engine is SqlEngine.ICEBERG:
        raise WrongUse("Iceberg tables need no statements: their catalog has them; see `prism iceberg status`")
    if role is not None and engine is not SqlEngine.REDSHIFT:
        raise WrongUse("--role is for Redshift: Athena reads with the rights of the caller")
    reader, iceberg = load_reader_settings(), load(IcebergSettings)
    shown = choose_shown(engine, _tables(), table)
    if engine is SqlEngine.REDSHIFT:
        statements = [*external_schemas(shown, reader, iceberg, role)]
    else:
        statements = [*views(shown, reader, iceberg, into)]
    if as_json:
        console.print_json(statements)
    else:
        typer.echo("\n\n".join(statements))


def _tables() -> Sequence[TableDefinition]:
    """Returns the tables of all table files. Raises DefinitionError with every problem."""
    from prism_assets.stages.apply.files import parse_table_files

    tables, problems = parse_table_files(load(LocationSettings).tables_dir)
    if problems:
        raise DefinitionError("\n".join(problems))
    return tables
