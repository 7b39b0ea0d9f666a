"""`prism query`: SQL over the tables of the catalog."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from prism_assets.cli.options import Json
from prism_assets.domain.errors import WrongUse
from prism_assets.settings import has_database, load_reader_settings, load_settings

if TYPE_CHECKING:
    from prism_assets.merge_on_read.reader import RecordsReader
    from prism_assets.reading.query import Reader


def query(
    sql: Annotated[str, typer.Argument(help="SQL over tables named schema.table.")],
    iceberg: Annotated[bool, typer.Option("--iceberg", help="Read the Iceberg tables instead of Glue's.")] = False,
    published: Annotated[
        bool, typer.Option("--published", help="Read join tables as Glue shows them, as of the last fold.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with a header.")] = False,
    vertical: Annotated[
        bool,
        typer.Option("--vertical", help="Print one line for each value."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Runs a query over the tables of the catalog; join tables include every committed change."""
    from prism_assets.cli.query_names import explaining_renames
    from prism_assets.cli.query_output import choose_format, show_query
    from prism_assets.reading.query import run_query

    form = choose_format(as_json=as_json, as_csv=as_csv, vertical=vertical)
    if iceberg and published:
        raise WrongUse("choose one: --iceberg reads the Iceberg tables, --published those of Glue")
    with ExitStack() as stack, explaining_renames():
        show_query(run_query(_reader(stack, iceberg=iceberg, published=published), sql), form)


def _reader(stack: ExitStack, *, iceberg: bool, published: bool) -> Reader:
    """The reader of a query. Settings of the platform are loaded where its PostgreSQL is asked."""
    if iceberg:
        from prism_assets.reading.iceberg_reader import IcebergReader

        return stack.enter_context(IcebergReader(load_settings()))
    from prism_assets.reading.lake_reader import LakeReader

    catalog = LakeReader(load_reader_settings())
    if published or not has_database():
        return catalog

    def open_records() -> RecordsReader:
        from prism_assets.merge_on_read.reader import RecordsReader

        return RecordsReader(load_settings())

    from prism_assets.merge_on_read.query_reader import QueryReader

    return QueryReader(catalog, open_records)
