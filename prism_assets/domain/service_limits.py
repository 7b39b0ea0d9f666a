"""Limits of the services that show tables. Local stand-ins do not enforce them, so `apply` checks them here.

Each number cites its page. For lengths of text, Glue's developer guide says bytes and its API reference says
characters; the stricter reading is used.
"""

from __future__ import annotations

from collections.abc import Iterator

GLUE_NAME = 255
"""Names of databases, tables and columns: docs.aws.amazon.com/glue/latest/webapi, API_DatabaseInput, API_TableInput,
API_Column."""
LONGEST_AFFIX = 80
"""Prefix and suffix of databases: a schema with both, and with the suffix of its other catalog, fits GLUE_NAME."""
GLUE_DESCRIPTION = 2_048
"""The description of a table: docs.aws.amazon.com/glue/latest/webapi/API_TableInput.html."""
GLUE_OWNER = 255
"""The owner of a table, on the page of GLUE_DESCRIPTION."""
GLUE_COMMENT = 255
"""The comment of a column, which is one line: docs.aws.amazon.com/glue/latest/webapi/API_Column.html."""
GLUE_TYPE = 131_072
"""The text of the type of a column, on the page of GLUE_COMMENT."""
SPECTRUM_COLUMNS = 1_600
"""The columns of a table: docs.aws.amazon.com/redshift/latest/dg/r_CREATE_EXTERNAL_TABLE.html."""
_SPECTRUM_OWN_COLUMNS = 3
"""`$path`, `$size` and `$spectrum_oid` count among SPECTRUM_COLUMNS, as its page says."""
MOST_COLUMNS = SPECTRUM_COLUMNS - _SPECTRUM_OWN_COLUMNS - 1
"""The columns of a table file. Every table has `dt` beside them."""
MOST_PARTS = 1_000
"""Fields, elements, keys and values of all nested columns of a table file. A limit of our own."""


def description_problems(text: str) -> Iterator[str]:
    """Yields why Glue refuses a table's description."""
    if (length := length_of(text)) > GLUE_DESCRIPTION:
        yield f"has {length:,} bytes, and Glue takes {GLUE_DESCRIPTION:,} for a table; shorten it"
    if any(character < " " and character not in "\t\r\n" for character in text):
        yield "has control characters, which Glue does not take; remove them"


def column_count_problem(count: int) -> str | None:
    """Returns why readers refuse a table with `count` columns beside `dt`, or None."""
    if count <= MOST_COLUMNS:
        return None
    return (
        f"a table has at most {MOST_COLUMNS:,} columns, and this one has {count:,}: Redshift Spectrum reads none with "
        'more; collect keys that are alike in one column, such as {name: user, type: json, source: "/^user_/"}'
    )


def length_of(text: str) -> int:
    """Returns the length of a text as the services count it, in bytes of UTF-8."""
    return len(text.encode("utf-8", "surrogatepass"))
