"""The grammar of names. Names are checked once on entry, and all later code relies on it."""

import difflib
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

LAKE_READER = "prism_reader"
"""PostgreSQL's role for reading the DuckLake views."""
SECRET_PREFIX = "PRISM_SECRET_"
"""Prefix of environment variables with secrets for expressions."""
DAY_COLUMN = "dt"
"""The day of a row: the partition key of every table, and no column of a table file."""
LONGEST_NAME = 64
NAME = re.compile(rf"[a-z][a-z0-9_]{{0,{LONGEST_NAME - 1}}}")
NAME_RULE = "must begin with a-z and hold only a-z, 0-9 and _, at most 64 characters"

RESERVED_SCHEMAS = {
    "information_schema": "every SQL engine describes its tables there",
    "pg_catalog": "PostgreSQL, Redshift and DuckDB describe their tables there",
    "global_temp": "Spark keeps its temporary views there, and refuses a catalog with such a database",
}
"""Forbidden schema names, each with the reason why readers would not find its tables."""


def is_name(text: str) -> bool:
    """Whether a schema, table or column name fits `^[a-z][a-z0-9_]{0,63}$`."""
    return NAME.fullmatch(text) is not None


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Returns `; did you mean …?` with a similar known name, or ""."""
    near = nearest(name, known)
    return f"; did you mean {near}?" if near else ""


def must_be_one_of(said: str, allowed: Collection[str]) -> str:
    """Returns the complaint about a word outside the allowed ones, with the nearest one if similar."""
    return f"must be one of {', '.join(allowed)}{did_you_mean(said, allowed)}"


def nearest(name: str, known: Collection[str]) -> str | None:
    """Returns the most similar known name, or None."""
    return next(iter(difflib.get_close_matches(name, known, 1)), None)


@dataclass(frozen=True, order=True)
class TableName:
    """The logical name of a table, and the physical name that keeps S3 paths stable after a rename."""

    schema: str
    table: str
    physical_schema: str | None = None
    physical_table: str | None = None

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def physical(self) -> str:
        """`schema.table` in S3 keys. Each part falls back to the logical one."""
        return f"{self.physical_schema or self.schema}.{self.physical_table or self.table}"


_ORIGINAL_KEY = re.compile(
    r"[0-9a-f]{4}\.(?:[^/.]+\.)*(?P<schema>[^/.]+)\.(?P<table>[^/.]+)/"
    r"(?P<year>\d{4})/(?P<month>\d{2})/(?P<day>\d{2})/[^/]+",
    re.ASCII,
)


def original_stream_name(key: str) -> str | None:
    """Returns `schema.table` of a key like `{hash}.{…}.{schema}.{table}/YYYY/MM/DD/NAME`, or None."""
    match = _ORIGINAL_KEY.fullmatch(key)
    return f"{match['schema']}.{match['table']}" if match else None


def original_date(key: str) -> date | None:
    """Returns the date in such a key by its writer's clock, or None."""
    match = _ORIGINAL_KEY.fullmatch(key)
    try:
        return date(int(match["year"]), int(match["month"]), int(match["day"])) if match else None
    except ValueError:
        return None
