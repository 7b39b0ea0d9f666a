"""Facts about the messages of a block, as values of JSON: many at once, or one by one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.streams.sources import HEADER
from prism_assets.kernels.json.rows import NOTHING, Value
from prism_assets.kernels.values import Number

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Found(NamedTuple):
    """The values of a fact: integers, text, or objects as JSON."""

    values: pa.Array
    bad: Mask | None = None
    """Where bytes are no UTF-8. The value is null there. None: nowhere."""
    is_object: bool = False


@dataclass(frozen=True)
class MessageFacts:
    """The facts of consecutive messages of a spool object."""

    first: int
    """The number of the first message in the object."""
    rows: pa.Table
    """The messages, as spool objects have them."""
    topic: str
    schema_ids: Sequence[str | None] | None = None
    """The ids of schemas, by message. None: there are none."""
    _found: dict[str, Found] = field(default_factory=dict, repr=False)

    def of(self, name: str) -> Found:
        """Returns the values of a fact for all messages."""
        if name not in self._found:
            self._found[name] = self._look(name)
        return self._found[name]

    def at(self, name: str, numbers: Indices) -> Found:
        """Returns the values of a fact for the messages with these numbers."""
        values, bad, is_object = self.of(name)
        places = numbers - self.first
        return Found(values.take(pa.array(places)), None if bad is None else bad[places], is_object)

    def values(self, name: str) -> list[Value]:
        """Returns the values of a fact with their texts, as if each line contained them."""
        return json_values(self.of(name))

    def _look(self, name: str) -> Found:
        match name:
            case "@topic":
                return Found(pa.repeat(self.topic, len(self.rows)))
            case "@partition" | "@offset":
                return Found(joined_column(self.rows.column(name[1:])).cast(pa.int64()))
            case "@timestamp":
                return Found(_written_times(joined_column(self.rows.column("timestamp"))))
            case "@key":
                return _decoded(joined_column(self.rows.column("key")))
            case "@schema_id":
                ids = self.schema_ids if self.schema_ids is not None else [None] * len(self.rows)
                return Found(pa.array(ids, pa.string()))
            case "@headers":
                return self._all_headers()
            case _:
                return self._header(name.removeprefix(HEADER))

    @cached_property
    def _headers(self) -> tuple[Indices, pa.Array, pa.Array]:
        """The message of each header, and names and values of all headers."""
        lists = joined_column(self.rows.column("headers"))
        entries = lists.flatten()
        return np.asarray(pc.list_parent_indices(lists), np.int64), entries.field("key"), entries.field("value")

    def _header(self, name: str) -> Found:
        """The last header of a name in each message."""
        parents, names, values = self._headers
        places = np.flatnonzero(pc.fill_null(pc.equal(names, name), False).to_numpy(zero_copy_only=False))
        last = np.full(len(self.rows), -1, np.int64)
        np.maximum.at(last, parents[places], places)
        return _decoded(values.take(pa.array(last, mask=last < 0)))

    def _all_headers(self) -> Found:
        """The headers of each message as one object, with the last one of each name."""
        parents, names, values = self._headers
        texts, bad, _ = _decoded(values)
        objects: list[dict[str, str | None] | None] = [None] * len(self.rows)
        for parent, name, text in zip(parents.tolist(), names.to_pylist(), texts.to_pylist(), strict=True):
            found = objects[parent] = objects[parent] or {}
            found[name] = text
        is_bad = None
        if bad is not None:
            is_bad = np.zeros(len(self.rows), bool)
            is_bad[parents[bad]] = True
        written = [None if found is None else orjson.dumps(found).decode() for found in objects]
        return Found(pa.array(written, pa.string()), is_bad, is_object=True)


def json_values(found: Found) -> list[Value]:
    """Returns values with their texts, as a reader of lines finds them."""
    read = found.values.to_pylist()
    if pa.types.is_integer(found.values.type):
        return [NOTHING if item is None else (Number(item), str(item)) for item in read]
    if found.is_object:
        return [NOTHING if item is None else (json.loads(item), item) for item in read]
    return [NOTHING if item is None else (item, json.dumps(item, ensure_ascii=False)) for item in read]


def joined_column(column: pa.ChunkedArray) -> pa.Array:
    """Returns a column as one array."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _written_times(instants: pa.Array) -> pa.Array:
    """Returns times as RFC 3339 writes them, with milliseconds."""
    return pc.replace_substring(instants.cast(pa.string()), " ", "T", max_replacements=1)


def _decoded(read: pa.Array) -> Found:
    """Returns bytes as text, and null where they are no UTF-8."""
    try:
        return Found(read.cast(pa.string()))
    except pa.ArrowInvalid:
        texts = [None if item is None else _text(item) for item in read.to_pylist()]
        decoded = pa.array(texts, pa.string())
        lost = pc.and_(read.is_valid(), decoded.is_null())
        return Found(decoded, np.asarray(lost.to_numpy(zero_copy_only=False), bool))


def _text(content: bytes) -> str | None:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
