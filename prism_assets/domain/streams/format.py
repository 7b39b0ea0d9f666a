"""The `format` of a stream in a table file: the content of its objects, if not lines of JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping

import yaml

from prism_assets.domain.streams.documents import record_steps
from prism_assets.domain.streams.stream import DocumentFormat, Format, ParquetFormat, ProtobufFormat
from prism_assets.domain.streams.text_lines import CsvFormat, RegexFormat, TextFormat, csv_problems, regex_problem
from prism_assets.domain.tables.file_keys import known_keys
from prism_assets.domain.tables.yaml_mapping import YamlMapping, plain

ReadFile = Callable[[str], bytes]
"""Reads a file that a table file names, by its path from there. Raises OSError."""
_JSON, _PARQUET = "json", "parquet"
_WANTED = (
    'must be json, parquet, {json: {records: "$.Records[*]"}}, {csv: {header: true}}, {regex: PATTERN}, or '
    "{protobuf: {descriptor: FILE, message: NAME}}"
)
MOST_DESCRIPTOR_BYTES = 4 << 20
"""Each version of a definition has the descriptor set, and each batch passes it to its workers."""


def no_file(name: str) -> bytes:
    """Raises FileNotFoundError. For table files without a folder."""
    raise FileNotFoundError(2, "No such file or directory", name)


def read_format(stream: YamlMapping, read_file: ReadFile) -> Format | None:
    """Reads `format`: lines of JSON by default, documents with `records`, Parquet, lines of text, or messages."""
    node = stream.children.get("format")
    if node is None or plain(node) in (None, _JSON):
        return None
    if plain(node) == _PARQUET:
        return ParquetFormat()
    if not isinstance(node, yaml.MappingNode):
        stream.complain("format", _WANTED)
        return None
    named = stream.mapping("format")
    named.only(known_keys("streams[].format"))
    given = [key for key in _READERS if key in named.children]
    for other in given[1:]:
        named.complain(other, f"must not stand beside {given[0]}: objects of a stream have one format")
    if "nulls" in named.children and given[:1] != ["regex"]:
        named.complain("nulls", "stands beside regex, or inside csv")
    if not given:
        if not named.children:
            stream.complain("format", _WANTED)
        return None
    return _READERS[given[0]](named, read_file)


def format_in_file(form: DocumentFormat | ParquetFormat | TextFormat) -> str:
    """Returns a format in the notation of table files."""
    match form:
        case ParquetFormat():
            return _PARQUET
        case DocumentFormat(records=records):
            return f"{{json: {{records: {_written(records)}}}}}"
        case CsvFormat():
            default = vars(CsvFormat())
            given = {key: value for key, value in vars(form).items() if value != default[key]}
            return f"{{csv: {{{', '.join(f'{key}: {_written(value)}' for key, value in given.items())}}}}}"
        case RegexFormat(regex=regex, nulls=nulls):
            quoted = "'" + regex.replace("'", "''") + "'" if regex.isprintable() else _written(regex)
            return f"{{regex: {quoted}{f', nulls: {_written(nulls)}' if nulls else ''}}}"


def _written(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _protobuf_format(named: YamlMapping, read_file: ReadFile) -> ProtobufFormat:
    protobuf = named.mapping(_PROTOBUF)
    protobuf.only(known_keys("streams[].format.protobuf"))
    return ProtobufFormat(message=protobuf.text("message"), descriptor_set=_descriptor_set(protobuf, read_file))


def _document_format(named: YamlMapping, _read_file: ReadFile) -> DocumentFormat | None:
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


def _csv_format(named: YamlMapping, _read_file: ReadFile) -> CsvFormat:
    csv = named.mapping("csv")
    csv.only(known_keys("streams[].format.csv"))
    default = CsvFormat()
    form = CsvFormat(
        columns=csv.texts("columns"),
        header=csv.flag("header", default.header),
        delimiter=csv.text("delimiter", default.delimiter),
        quote=csv.text("quote", default.quote) or "",
        escape=csv.text("escape", default.escape) or "",
        nulls=csv.texts("nulls", default=default.nulls),
    )
    for key, problem in csv_problems(form):
        csv.complain(key, problem)
    return form


def _regex_format(named: YamlMapping, _read_file: ReadFile) -> RegexFormat:
    regex: str = named.text("regex")
    if problem := regex_problem(regex):
        named.complain("regex", problem)
    return RegexFormat(regex=regex, nulls=named.texts("nulls"))


_PROTOBUF = "protobuf"
_READERS: Mapping[str, Callable[[YamlMapping, ReadFile], Format | None]] = {
    _JSON: _document_format,
    "csv": _csv_format,
    "regex": _regex_format,
    _PROTOBUF: _protobuf_format,
}


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
