"""Converts a protobuf message to JSON for the columns.

Fields keep their names in the .proto file. An absent field with presence is left out like a missing key. A field
without presence (proto3 without `optional`) always has its value, perhaps 0 or empty. Enums become their names, bytes
base64, maps objects sorted by key. Timestamps, durations and wrappers follow protobuf's own JSON mapping. Fields
unknown to the descriptor are ignored.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Container, Iterable
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import orjson
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from prism_assets.domain.names import did_you_mean
from prism_assets.domain.streams.stream import ProtobufFormat
from prism_assets.kernels.numbers import of_single

_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

_Writer = Callable[[Any], Any]
"""Converts a value of protobuf's library to a JSON value."""


class DescriptorError(Exception):
    """The descriptor set is unusable. The message names the cause and the remedy."""


class UnreadableError(Exception):
    """The bytes are no message of this type."""


class _Field(NamedTuple):
    """A field of a message. `optional` if it may be absent, `write` converts its value."""

    name: str
    optional: bool
    write: _Writer | None


class _Fields:
    """Some fields of a message type. Fields that are always present and need no conversion are read all at once."""

    def __init__(self, fields: Iterable[_Field]) -> None:
        wanted = list(fields)
        self._plain = [field.name for field in wanted if not field.optional and field.write is None]
        self._others = [field for field in wanted if field.optional or field.write is not None]
        self._values = attrgetter(*self._plain) if len(self._plain) > 1 else self._at_most_one

    def _at_most_one(self, message: Any) -> tuple[Any, ...]:
        return tuple(getattr(message, name) for name in self._plain)

    def document(self, message: Any) -> dict[str, Any]:
        """Returns a message as a JSON object."""
        document: dict[str, Any] = dict(zip(self._plain, self._values(message), strict=True))
        for name, optional, write in self._others:
            if optional and not message.HasField(name):
                continue
            value = getattr(message, name)
            document[name] = value if write is None else write(value)
        return document


class MessageType:
    """One message type. `names` limits the fields in `to_json`; None means all."""

    def __init__(self, given: ProtobufFormat, names: Container[str] | None = None) -> None:
        descriptor = find_message(given)
        self._read = GetMessageClass(descriptor).FromString
        every = _fields_of(descriptor)
        self._all = _Fields(every)
        self._wanted = _Fields(field for field in every if names is None or field.name in names)
        self._needs_check = _has_required(descriptor, set())

    def to_json(self, content: bytes) -> bytes:
        """Returns the requested fields as one line. Raises UnreadableError."""
        return self._written(content, self._wanted)

    def to_whole_json(self, content: bytes) -> bytes:
        """Returns all fields as one line. Raises UnreadableError."""
        return self._written(content, self._all)

    def _written(self, content: bytes, fields: _Fields) -> bytes:
        try:
            message = self._read(content)
            if self._needs_check and not message.IsInitialized():
                raise UnreadableError
            return orjson.dumps(fields.document(message))
        except (DecodeError, UnicodeError, RecursionError, orjson.JSONEncodeError) as error:
            raise UnreadableError from error


def find_message(given: ProtobufFormat) -> Descriptor:
    """Returns the message type of a stream's format from its descriptor set. Raises DescriptorError."""
    pool, names = _load(given.descriptor_set)
    if given.message not in names:
        raise DescriptorError(
            f"the descriptor set has no message {given.message}{did_you_mean(given.message, names)}; it has "
            f"{', '.join(sorted(names)[:20]) or 'none'}"
        )
    return pool.FindMessageTypeByName(given.message)


@cache
def _load(descriptor_set: str) -> tuple[DescriptorPool, frozenset[str]]:
    """Loads a descriptor set once a process, because making a pool takes as long as thousands of messages."""
    files = FileDescriptorSet()
    try:
        files.ParseFromString(base64.b64decode(descriptor_set))
    except DecodeError:
        files.Clear()
    if not files.file:
        raise DescriptorError("this is no descriptor set: make it with protoc --include_imports --descriptor_set_out")
    pool = DescriptorPool()
    names: set[str] = set()
    for file in files.file:
        try:
            pool.Add(file)
            added = pool.FindFileByName(file.name)
        except (TypeError, KeyError) as error:
            raise DescriptorError(
                f"{file.name} cannot be used, as {_first_line(error)}; make the set with protoc --include_imports"
            ) from error
        for descriptor in added.message_types_by_name.values():
            names.update(_names(descriptor))
    return pool, frozenset(names)


def _first_line(error: Exception) -> str:
    return str(error).strip("'\"").partition("\n")[0]


def _names(descriptor: Descriptor) -> list[str]:
    return [descriptor.full_name, *(name for nested in descriptor.nested_types for name in _names(nested))]


def _has_required(descriptor: Descriptor, seen: set[str]) -> bool:
    """Whether messages of the type may lack fields required by proto2."""
    if descriptor.full_name in seen:
        return False
    seen.add(descriptor.full_name)
    return any(
        field.is_required or (field.message_type is not None and _has_required(field.message_type, seen))
        for field in descriptor.fields
    )


def _fields_of(descriptor: Descriptor) -> tuple[_Field, ...]:
    return tuple(_Field(field.name, field.has_presence, _writer(field)) for field in descriptor.fields)


def _writer(field: FieldDescriptor) -> _Writer | None:
    """Returns the conversion of a field's value, or None if none is needed."""
    if not field.is_repeated:
        return _single(field)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _map(field.message_type)
    write = _single(field)
    return list if write is None else lambda values: [write(value) for value in values]


def _single(field: FieldDescriptor) -> _Writer | None:
    if field.message_type is not None:
        return _nested(field.message_type)
    if field.enum_type is not None:
        return _enum(field.enum_type)
    match field.type:
        case FieldDescriptor.TYPE_BYTES:
            return _base64
        case FieldDescriptor.TYPE_DOUBLE:
            return _number
        case FieldDescriptor.TYPE_FLOAT:
            return _single_precision
        case _:
            return None


def _single_precision(value: float) -> Any:
    """Shortens a float to its significant digits. A decimal column would otherwise keep digits of the conversion to
    double.
    """
    return _number(of_single(value))


def _number(value: float) -> Any:
    """Spells NaN and infinities as JSON lines do. The column's type decides about them."""
    if math.isfinite(value):
        return value
    return orjson.Fragment(b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity")


def _enum(enum: EnumDescriptor) -> _Writer:
    """Returns the name of an enum value, or its number if the descriptor has no name for it."""
    names = {number: value.name for number, value in enum.values_by_number.items()}
    return lambda number: names.get(number, number)


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _map(entry: Descriptor) -> _Writer:
    """Returns an object with sorted keys, because protobuf has no order."""
    field = entry.fields_by_name["value"]
    write = _single(field) or _itself
    by_message = field.message_type is not None  # reading such a value by its key creates it

    def written(values: Any) -> dict[str, Any]:
        return {_map_key(key): write(values[key]) for key in sorted(values)}

    def written_of_scalars(values: Any) -> dict[str, Any]:
        return {_map_key(key): write(value) for key, value in sorted(values.items())}

    return written if by_message else written_of_scalars


def _map_key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _itself(value: Any) -> Any:
    return value


@cache
def _nested(descriptor: Descriptor) -> _Writer:
    """Returns the conversion of a nested message. Looks up its fields on first use, because types may be recursive."""
    name = descriptor.full_name
    if name in ("google.protobuf.Timestamp", "google.protobuf.Duration"):
        return _well_known_text
    if name in _WRAPPERS:
        write = _single(descriptor.fields_by_name["value"]) or _itself
        return lambda message: write(message.value)
    if name == "google.protobuf.Struct":
        return lambda message: {key: _struct_value(message.fields[key]) for key in sorted(message.fields)}
    if name == "google.protobuf.ListValue":
        return lambda message: [_struct_value(value) for value in message.values]
    if name == "google.protobuf.Value":
        return _struct_value
    return lambda message: _known_fields(descriptor).document(message)


@cache
def _known_fields(descriptor: Descriptor) -> _Fields:
    return _Fields(_fields_of(descriptor))


def _well_known_text(message: Any) -> Any:
    """Returns RFC 3339 or seconds with an `s`. Falls back to the plain message for values outside the range."""
    try:
        return message.ToJsonString()
    except (ValueError, OverflowError):
        return _known_fields(message.DESCRIPTOR).document(message)


def _struct_value(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind is None or kind == "null_value":
        return None
    found = getattr(value, kind)
    if kind == "number_value":
        return _number(found)
    return _nested(found.DESCRIPTOR)(found) if kind in ("struct_value", "list_value") else found
