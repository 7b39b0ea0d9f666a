"""The `route` of a stream: its share of a prefix that several tables read.

`key` gives whole objects to a table, at registration. `by` gives lines to tables, by the value of one field. One table
of each group takes `otherwise`: every other line, and lines without a readable value.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from prism_assets.domain.streams.key_patterns import matches
from prism_assets.domain.streams.sources import Key, Path, parse_source


@dataclass(frozen=True, kw_only=True)
class Route:
    """The objects and lines of a stream.

    A table file names its own part. `apply` adds the parts of the other tables where this one takes the rest, so a
    stored definition decides alone, and a change of another table's part is a new version here, too.
    """

    key: str | None = None
    """A glob pattern of keys below the prefix. The stream reads the matching objects."""
    by: str | None = None
    """The field that decides, in the notation of sources."""
    values: tuple[str, ...] = ()
    """The values of `in`; with `otherwise`, the values of the other tables."""
    otherwise: bool = False
    """The stream takes the objects, or the lines, that no other stream takes."""
    taken_keys: tuple[str, ...] = ()
    """The patterns of other streams, for a stream without one."""

    def takes_object(self, key: str) -> bool:
        """Whether the stream reads an object, by its key below the prefix."""
        if self.key is not None:
            return matches(self.key, key)
        return not any(matches(taken, key) for taken in self.taken_keys)

    @cached_property
    def field(self) -> Key | Path | None:
        """The source of the deciding value. None if all lines belong to the stream."""
        source = None if self.by is None else parse_source(self.by)
        return source if isinstance(source, Key | Path) else None

    def takes_value(self, value: str | None) -> bool:
        """Whether a line belongs to the stream, by its value as text, or None without a readable one."""
        return (value in self.values) is not self.otherwise if value is not None else self.otherwise

    def describe(self) -> str:
        """Returns the route in the notation of table files."""
        parts = [f"key: '{self.key}'"] if self.key is not None else []
        parts += [f"by: {self.by}"] if self.by is not None else []
        parts += ["otherwise: true"] if self.otherwise else []
        parts += [f"in: [{', '.join(self.values)}]"] if self.values and not self.otherwise else []
        return f"{{{', '.join(parts)}}}"

    def to_document(self) -> dict[str, Any]:
        """Returns the route for stored definitions, without empty fields."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: value for name, value in fields.items() if value not in ((), None, False)}
