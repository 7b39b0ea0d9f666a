"""The grammar of names. Names are checked once, where they enter; everything behind relies on it."""

import re
from dataclasses import dataclass

NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
NAME_RULE = "must begin with a-z and hold only a-z, 0-9 and _, at most 64 characters"


def is_name(text: str) -> bool:
    """Tells whether a schema, table or column name fits `^[a-z][a-z0-9_]{0,63}$`."""
    return NAME.fullmatch(text) is not None


@dataclass(frozen=True, order=True)
class TableName:
    """The logical name of a table, and the physical one that keeps S3 paths stable when it is renamed."""

    schema: str
    table: str
    physical_schema: str | None = None
    physical_table: str | None = None

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"

    @property
    def physical(self) -> str:
        """`schema.table` as used in S3 keys; each part falls back to the logical one by itself."""
        return f"{self.physical_schema or self.schema}.{self.physical_table or self.table}"


_ORIGINAL_PREFIX = re.compile(r"(?P<hash>[0-9a-f]{4})\.(?:[^/.]+\.)*(?P<schema>[^/.]+)\.(?P<table>[^/.]+)/")


def original_stream_name(key: str) -> str | None:
    """Returns `schema.table` of a key like `{hash}.{…}.{schema}.{table}/YYYY/MM/DD/NAME`, or None."""
    match = re.fullmatch(_ORIGINAL_PREFIX.pattern + r"\d{4}/\d{2}/\d{2}/[^/]+", key)
    return f"{match['schema']}.{match['table']}" if match else None
