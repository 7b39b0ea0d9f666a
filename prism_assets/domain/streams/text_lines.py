"""Text lines: the fields of a line between delimiters, or in the named groups of a regular expression."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

MOST_FIELDS = 2_000
"""The most names of fields, and so the most fields of a line that are read."""
LONGEST_NAME = 200
"""The most characters of a name. Each line as JSON repeats the names of its fields."""
MOST_OF_NAMES = 1 << 16
"""The most characters of all names together."""
_ONE_BYTE = re.compile(r"[\t\x20-\x7e]")
_BYTE_CLASS = re.compile(r"(?<!\\)(?:\\\\)*\\C")


@dataclass(frozen=True, kw_only=True)
class CsvFormat:
    """Lines of fields between delimiters. A newline ends the line, in quotes, too."""

    columns: tuple[str, ...] = ()
    """The names of the fields in order; none if the first line of each object names them."""
    header: bool = False
    """Whether the first line of each object names the fields. This line is no record."""
    delimiter: str = ","
    quote: str = '"'
    """Encloses a field, and stands twice for itself inside; "" for none."""
    escape: str = ""
    """Inside quotes, makes the next character literal; "" for none."""
    nulls: tuple[str, ...] = ("",)
    """Fields that stand for null, in quotes or not."""


@dataclass(frozen=True, kw_only=True)
class RegexFormat:
    """Lines that a regular expression of RE2 matches. Its named groups are the fields; an empty group is null."""

    regex: str
    nulls: tuple[str, ...] = ()
    """Further fields that stand for null."""


TextFormat = CsvFormat | RegexFormat


def csv_problems(form: CsvFormat) -> Sequence[tuple[str, str]]:
    """Returns keys of `csv` in a table file, each with what is wrong there."""
    found: list[tuple[str, str]] = []
    signs = {"delimiter": form.delimiter, "quote": form.quote, "escape": form.escape}
    for key, sign in signs.items():
        if not _ONE_BYTE.fullmatch(sign) and (sign or key == "delimiter"):
            may_be_empty = "" if key == "delimiter" else ', or "" for none'
            found.append((key, f"must be one printable ASCII character or a tab{may_be_empty}"))
        if sign and sign in [other for name, other in signs.items() if name != key]:
            found.append((key, f"{sign!r} has two meanings: delimiter, quote and escape must differ"))
    if form.escape and not form.quote:
        found.append(("escape", "has no meaning without `quote`: it stands before characters inside quotes"))
    if form.header and form.columns:
        found.append(
            ("columns", "must not stand beside `header: true`: the first line of each object names the fields")
        )
    if not form.header and not form.columns:
        found.append(
            ("columns", "must name the fields in order; write `header: true` instead if each object names them")
        )
    if problem := names_problem(form.columns):
        found.append(("columns", problem))
    return found


def names_problem(names: Sequence[str]) -> str | None:
    """Returns why names cannot be those of fields, or None."""
    if len(names) > MOST_FIELDS:
        return f"has {len(names):,} names; {MOST_FIELDS:,} are the most"
    for place, name in enumerate(names):
        if len(name) > LONGEST_NAME:
            return f"has a name of {len(name):,} characters for field {place + 1}; {LONGEST_NAME} are the most"
        if not name.strip():
            return f"has no name for field {place + 1}"
        if name in names[:place]:
            return f"has {name} twice"
    size = sum(map(len, names))
    return f"has names of {size:,} characters in all; {MOST_OF_NAMES:,} are the most" if size > MOST_OF_NAMES else None


def regex_problem(regex: str) -> str | None:
    """Returns why a regular expression is refused though RE2 takes it, or None."""
    if _BYTE_CLASS.search(regex):
        return r"has \C, which cuts characters in two: write . for any character"
    return None
