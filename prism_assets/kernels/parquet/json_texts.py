"""Writes values of Arrow as texts of JSON, a column at a time. Every value keeps its exact meaning."""

from __future__ import annotations

import base64
import json
import re

import pyarrow as pa
import pyarrow.compute as pc

from prism_assets.domain.errors import UnsupportedContent

TEXT = pa.large_binary()
"""The type of texts. 64-bit offsets: 2 GiB of text in a column are possible."""
_CONTROL = re.compile(rb"[\x00-\x1f]")
_NOT_FINITE = {b"nan": b"NaN", b"inf": b"Infinity", b"-inf": b"-Infinity"}


def name_text(name: str) -> bytes:
    """Returns a name as a text of JSON."""
    return json.dumps(name, ensure_ascii=False).encode("utf-8", "surrogatepass")


def json_texts(values: pa.Array) -> pa.Array:
    """Returns the text of each value, `null` for nulls.

    Numbers, also decimals, are numbers with all their digits. Times are texts of ISO 8601, with `Z` where the column
    has instants. Binary values are texts where they are UTF-8, and base64 otherwise. Raises UnsupportedContent for a
    type without a form in JSON.
    """
    texts = _texts(values)
    return pc.if_else(values.is_valid(), texts, pa.scalar(b"null", TEXT)) if values.null_count else texts


def _texts(values: pa.Array) -> pa.Array:
    """Returns the text of each value. Null, or any text, for nulls."""
    kind = values.type
    types = pa.types
    if isinstance(values, pa.ExtensionArray):
        return _texts(values.storage)
    if types.is_dictionary(kind):
        return json_texts(values.dictionary).take(values.indices)
    if types.is_null(kind):
        return pa.nulls(len(values), TEXT)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_decimal(kind):
        return _written(values)
    if types.is_floating(kind):
        return _floats(values)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _quoted(values.cast(pa.large_string()).cast(TEXT))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return _quoted(_readable(values.cast(TEXT)))
    if types.is_date(kind):
        return _in_quotes(_written(values.cast(pa.date32())))
    if types.is_timestamp(kind):
        # Instants are numbers in UTC. With a zone, Arrow takes ten times as long for the same digits.
        digits = _written(values.view(pa.timestamp(kind.unit)))
        return _in_quotes(pc.replace_substring(digits, " ", "T"), b'"' if kind.tz is None else b'Z"')
    if types.is_time(kind):
        return _in_quotes(_written(values))
    if types.is_map(kind):
        return _maps(values)
    if types.is_struct(kind):
        return _structs(values)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _lists(values)
    raise UnsupportedContent(
        f"a column of its Parquet has the type {kind}, which has no form in JSON: leave the column out where it is "
        "written"
    )


def _written(values: pa.Array) -> pa.Array:
    return values.cast(pa.large_string()).cast(TEXT)


def _floats(values: pa.Array) -> pa.Array:
    """Returns the shortest texts that are read as the same double. A narrow float is a double first."""
    texts = _written(values.cast(pa.float64()))
    odd = pc.invert(pc.is_finite(values.cast(pa.float64()))).fill_null(False)
    if not odd.true_count:
        return texts
    return pc.replace_with_mask(
        texts, odd, pa.array([_NOT_FINITE[text] for text in texts.filter(odd).to_pylist()], TEXT)
    )


def _in_quotes(texts: pa.Array, end: bytes = b'"') -> pa.Array:
    return pc.binary_join_element_wise(pa.scalar(b'"', TEXT), texts, pa.scalar(end, TEXT), pa.scalar(b"", TEXT))


def _quoted(values: pa.Array) -> pa.Array:
    """Returns bytes as strings of JSON. Bytes that are no UTF-8 stay, and their line is set aside as `bad_utf8`."""
    texts = pc.replace_substring(pc.replace_substring(values, "\\", "\\\\"), '"', '\\"')
    has_control = pc.match_substring_regex(texts, r"[\x00-\x1f]").fill_null(False)
    if has_control.true_count:
        escaped = [_CONTROL.sub(_escape, text) for text in texts.filter(has_control).to_pylist()]
        texts = pc.replace_with_mask(texts, has_control, pa.array(escaped, TEXT))
    return _in_quotes(texts)


def _escape(found: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % found[0][0]


def _readable(values: pa.Array) -> pa.Array:
    """Returns binary values as they are if they are UTF-8, and in base64 otherwise."""
    try:
        values.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.array([None if value is None else _as_text(value) for value in values.to_pylist()], TEXT)
    return values


def _as_text(value: bytes) -> bytes:
    try:
        value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value)
    return value


def _structs(values: pa.Array) -> pa.Array:
    parts: list[pa.Array | pa.Scalar] = []
    for number, field in enumerate(values.type):
        parts.append(pa.scalar((b"," if parts else b"{") + name_text(field.name) + b":", TEXT))
        parts.append(json_texts(values.field(number)))
    if not parts:
        return pa.repeat(pa.scalar(b"{}", TEXT), len(values))
    return pc.binary_join_element_wise(*parts, pa.scalar(b"}", TEXT), pa.scalar(b"", TEXT))


def _lists(values: pa.Array) -> pa.Array:
    lists = values.cast(pa.large_list(values.type.value_type))
    return _joined(lists.offsets, json_texts(lists.values), b"[", b"]")


def _maps(values: pa.Array) -> pa.Array:
    keys, kind = json_texts(values.keys), values.type.key_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind)):
        keys = _in_quotes(pc.replace_substring(keys, '"', ""))
    entries = pc.binary_join_element_wise(keys, json_texts(values.items), pa.scalar(b":", TEXT))
    return _joined(values.offsets, entries, b"{", b"}")


def _joined(offsets: pa.Array, entries: pa.Array, begin: bytes, end: bytes) -> pa.Array:
    """Returns the entries between each two offsets, in brackets."""
    lists = pa.LargeListArray.from_arrays(offsets.cast(pa.int64()), entries)
    inner = pc.binary_join(lists, pa.scalar(b",", TEXT))
    return pc.binary_join_element_wise(pa.scalar(begin, TEXT), inner, pa.scalar(end, TEXT), pa.scalar(b"", TEXT))
