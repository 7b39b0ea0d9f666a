"""`prism join`: why records of join tables are as they are."""

from __future__ import annotations

from typing import Annotated

import typer

from prism_assets import console
from prism_assets.cli.options import Json, open_context

join_app = typer.Typer(no_args_is_help=True, help="Records of join tables.")


@join_app.command()
def explain(
    table: Annotated[str, typer.Argument(help="schema.table")],
    key: Annotated[list[str], typer.Option("--key", help="The key; once for each of its columns, in their order.")],
    as_json: Json = False,
) -> None:
    """Lists every change of a key that the log shows, what won, and why."""
    from prism_assets.reading.explain import explain_key
    from prism_assets.reading.lake_reader import LakeReader

    context = open_context(as_json)
    (definition,) = context.choose_tables([table])
    explained = explain_key(LakeReader(context.settings), definition, key)
    console.show_lines([explained], explained.lines, as_json=as_json)
