"""The `format` of a stream in a table file: the content of its objects, if not lines of JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable

import yaml

from prism_assets.domain.streams.documents import record_steps
from prism_assets.domain.streams.stream import DocumentFormat, Format, ProtobufFormat
from prism_assets.domain.tables.file_keys import known_keys
from prism_assets.domain.tables.yaml_mapping import YamlMapping, plain

ReadFile = Callable[[str], bytes]
"""Reads a file that a table file names, by its path from there. Raises OSError."""
_JSON = "json"
MOST_DESCRIPTOR_BYTES = 4 << 20
"""Each version of a definition has the descriptor set, and each batch passes it to its workers."""


def no_file(name: str) -> bytes:
    """Raises FileNotFoundError. For table files without a folder."""
    raise FileNotFoundError(2, "No such file or directory", name)


def read_format(stream: YamlMapping, read_file: ReadFile) -> Format | None:
    """Reads `format`: lines of JSON by default, documents with `records`, or messages with a `descriptor`."""
    node = stream.children.get("format")
    if node is None or plain(node) in (None, _JSON):
        return None
    if not isinstance(node, yaml.MappingNode):
        stream.complain(
            "format",
            'must be json, {json: {records: "$.Records[*]"}}, or {protobuf: {descriptor: FILE, message: NAME}}',
        )
        return None
    named = stream.mapping("format")
    named.only(known_keys("streams[].format"))
    if _JSON in named.children:
        return _document_format(named)
    protobuf = named.mapping("protobuf")
    protobuf.only(known_keys("streams[].format.protobuf"))
    return ProtobufFormat(message=protobuf.text("message"), descriptor_set=_descriptor_set(protobuf, read_file))


def _document_format(named: YamlMapping) -> DocumentFormat | None:
    if "protobuf" in named.children:
        named.complain("protobuf", "must not stand beside json: objects of a stream have one format")
    documents = named.mapping(_JSON)
    documents.only(known_keys("streams[].format.json"))
    records: str = documents.text("records")
    try:
        record_steps(records)
    except ValueError as error:
        if records:  # a missing key is reported already
            documents.complain("records", str(error))
        return None
    return DocumentFormat(records=records)


def _descriptor_set(protobuf: YamlMapping, read_file: ReadFile) -> str:
    name: str = protobuf.text("descriptor")
    if not name:
        return ""
    try:
        content = read_file(name)
    except OSError as error:
        protobuf.complain("descriptor", f"{name}, from the folder of this file, cannot be read: {error.strerror}")
        return ""
    if len(content) > MOST_DESCRIPTOR_BYTES:
        protobuf.complain(
            "descriptor",
            f"{name} has {len(content):,} bytes, at most {MOST_DESCRIPTOR_BYTES:,} are taken: leave out source info "
            "and messages that this one does not need",
        )
        return ""
    return base64.b64encode(content).decode()
