"""How the rows of a query look, on terminals of any width and for other programs."""

from __future__ import annotations

import csv
import io
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import combinations

import pytest
from rich.console import Console

from prism_assets.cli.query_output import print_rows, write_csv
from prism_assets.reading.query import QueryResult
from prism_assets_tests.command.prism import Prism

LONG = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0 Safari/537.36"
WIDE = QueryResult(("id", "agent", "page"), ((1, LONG, "/"), (2, "[/x]", None)))


def printed(result: QueryResult, *, width: int, is_terminal: bool) -> str:
    file = io.StringIO()
    print_rows(result, Console(file=file, width=width, force_terminal=is_terminal, color_system=None, highlight=False))
    return file.getvalue()


def test_rows_that_are_wider_than_the_terminal_have_a_line_for_each_value() -> None:
    assert printed(WIDE, width=80, is_terminal=True).splitlines() == [
        "row 1",
        "  id     1",
        f"  agent  {LONG[:71]}",
        LONG[71:],
        "  page   /",
        "row 2",
        "  id     2",
        "  agent  [/x]",
        "  page",
    ]


@pytest.mark.parametrize(("width", "is_terminal"), [(200, True), (200, False), (40, False)])
def test_a_table_is_as_wide_as_its_rows_where_it_fits_or_nobody_watches(width: int, is_terminal: bool) -> None:
    lines = printed(WIDE, width=width, is_terminal=is_terminal).splitlines()
    assert [line.split("│")[1:4] for line in lines if "│" in line] == [
        [" 1  ", f" {LONG} ", " /    "],
        [" 2  ", f" [/x]{' ' * (len(LONG) - 3)}", "      "],
    ]


def test_a_value_of_several_lines_keeps_them() -> None:
    text = printed(QueryResult(("text",), (("first\nsecond",),)), width=80, is_terminal=False)
    assert [line.strip("│ ") for line in text.splitlines() if "│" in line] == ["first", "second"]


def test_csv_is_read_as_it_was_written() -> None:
    row = (1, 'say "hi", twice\n', None, True, Decimal("1.10"), [1, {"a": date(2026, 3, 1)}], b"\xff")
    at = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
    file = io.StringIO()
    write_csv(QueryResult(("n", "text", "none", "yes", "price", "list", "bytes", "at"), ((*row, at),)), file)
    assert list(csv.reader(io.StringIO(file.getvalue()))) == [
        ["n", "text", "none", "yes", "price", "list", "bytes", "at"],
        ["1", 'say "hi", twice\n', "", "true", "1.10", '[1, {"a": "2026-03-01"}]', "b'\\xff'", f"{at}"],
    ]


def test_the_options_choose_a_format(prism: Prism) -> None:
    sql = "SELECT 1 AS one, 'x' AS text"
    assert prism.ok("query", "--csv", sql).out == "one,text\n1,x\n"
    assert prism.ok("query", "--vertical", sql).out == "row 1\n  one   1\n  text  x\n"
    assert prism.ok("query", "--vertical", f"{sql} WHERE false").out == "no row\n"
    for two in combinations(("--json", "--csv", "--vertical"), 2):
        done = prism("query", *two, sql)
        assert (done.status, done.out) == (2, "")
        assert done.err == f"prism: {two[0]} and {two[1]} are two formats; choose one. No query was run\n"
