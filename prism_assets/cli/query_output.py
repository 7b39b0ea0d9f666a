"""Prints the rows of a query as a table, a line per value, CSV or JSON."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from prism_assets.console import encode, escape, out, print_json
from prism_assets.domain.errors import WrongUse

if TYPE_CHECKING:
    from prism_assets.reading.query import QueryResult

_BORDER = 3  # per column: a line, and a space on either side


class QueryFormat(Enum):
    """How rows are printed."""

    TABLE = "as a table, or where the terminal is too narrow for it, as VERTICAL"
    VERTICAL = "--vertical"
    CSV = "--csv"
    JSON = "--json"


def choose_format(*, as_json: bool, as_csv: bool, vertical: bool) -> QueryFormat:
    """Returns the format of the options. Raises WrongUse for two of them."""
    named = {QueryFormat.JSON: as_json, QueryFormat.CSV: as_csv, QueryFormat.VERTICAL: vertical}
    chosen = [form for form, is_chosen in named.items() if is_chosen]
    if len(chosen) > 1:
        raise WrongUse(f"{' and '.join(form.value for form in chosen)} are two formats; choose one. No query was run")
    return chosen[0] if chosen else QueryFormat.TABLE


def show_query(result: QueryResult, form: QueryFormat) -> None:
    """Prints the rows of a query."""
    match form:
        case QueryFormat.JSON:
            print_json([dict(zip(result.columns, map(_keyed_by_text, row), strict=True)) for row in result.rows])
        case QueryFormat.CSV:
            write_csv(result, sys.stdout)
        case QueryFormat.VERTICAL:
            print_vertical(result, out)
        case QueryFormat.TABLE:
            print_rows(result, out)


def write_csv(result: QueryResult, file: TextIO) -> None:
    """Writes CSV as of RFC 4180, with a line of names. Null is empty; lists and structs are JSON."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(result.columns)
    writer.writerows([_plain(value) for value in row] for row in result.rows)


def print_rows(result: QueryResult, console: Console) -> None:
    """Prints a table as wide as its rows. On a terminal that is too narrow, prints a line for each value."""
    rows = [[_cell(value) for value in row] for row in result.rows]
    widths = [
        max(_width(text) for text in (name, *(row[place] for row in rows))) for place, name in enumerate(result.columns)
    ]
    needed = sum(widths) + _BORDER * len(widths) + 1
    if console.is_terminal and needed > console.width:
        print_vertical(result, console)
        return
    grid = Table(width=needed)
    for name, width in zip(result.columns, widths, strict=True):
        grid.add_column(escape(name), min_width=width, no_wrap=True)
    for row in rows:
        grid.add_row(*map(escape, row))
    console.print(grid, width=max(needed, console.width), crop=False, no_wrap=True, soft_wrap=False)


def print_vertical(result: QueryResult, console: Console) -> None:
    """Prints a line for each value, below a line with the number of the row."""
    longest = max(map(cell_len, result.columns), default=0)
    for number, row in enumerate(result.rows, 1):
        console.print(f"[bold]row {number}[/bold]")
        for name, value in zip(result.columns, row, strict=True):
            padding = " " * (longest - cell_len(name))
            console.print(f"  [dim]{escape(name)}[/dim]{padding}  {escape(_cell(value))}".rstrip())
    if not result.rows:
        console.print("no row")


def _cell(value: Any) -> str:
    return "" if value is None else str(value)


def _width(text: str) -> int:
    """Returns the width of the widest line. Prints invisible characters like `escape`."""
    return max((cell_len(line) for line in escape(text).replace("\\[", "[").splitlines()), default=0)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping | Sequence) and not isinstance(value, str | bytes):
        return json.dumps(_keyed_by_text(value), default=encode, ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _keyed_by_text(value: Any) -> Any:
    """Returns the value with the keys of its maps as text, because JSON needs text."""
    if isinstance(value, Mapping):
        return {str(key): _keyed_by_text(item) for key, item in value.items()}
    return [_keyed_by_text(item) for item in value] if isinstance(value, list) else value
