"""The fields of text lines that a table reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from prism_assets.domain.streams.sources import key_and_steps
from prism_assets.domain.streams.text_lines import CsvFormat, TextFormat
from prism_assets.kernels.typed import Layout


@dataclass(frozen=True, kw_only=True)
class ReadFields:
    """The fields that a table reads."""

    keys: Collection[str] | None = None
    """None: every field."""
    expected: Collection[str] = ()
    """A header must have one of these. Empty: any header will do."""

    def takes(self, name: str) -> bool:
        """Whether the table reads a field."""
        return self.keys is None or name in self.keys


EVERY_FIELD = ReadFields()


def read_fields_of(layout: Layout, form: TextFormat) -> ReadFields:
    """Returns the fields for the lines of one object.

    A header may bring a field without a column, and these are counted. Names in the table file are known, so no field
    of theirs is undefined. Tables that share a prefix must judge a header alike, so they take any.
    """
    lookups, route = layout.reading.lookups, layout.route
    if isinstance(form, CsvFormat) and form.header:
        return ReadFields(expected=() if lookups.collects or route is not None else lookups.wanted)
    if lookups.collects:
        return EVERY_FIELD
    routed = [] if route is None or route.field is None else [key_and_steps(route.field)[0]]
    return ReadFields(keys=frozenset([*lookups.wanted, *routed]))
