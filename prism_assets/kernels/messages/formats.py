"""The way from the value of a message to a line, by the format of the stream."""

from __future__ import annotations

from collections.abc import Container

from prism_assets.domain.streams.stream import Format, ProtobufFormat
from prism_assets.domain.streams.text_lines import TextFormat
from prism_assets.kernels.messages.blocks import JsonLines, LinesOf, ProtobufLines, TextLines
from prism_assets.kernels.text_lines.lines import MakeDivider
from prism_assets.kernels.text_lines.read_fields import EVERY_FIELD, ReadFields


def lines_of(
    form: Format | None, make: MakeDivider, read_fields: ReadFields = EVERY_FIELD, names: Container[str] | None = None
) -> LinesOf:
    """Returns the maker of lines. `read_fields` limits the fields of text, and `names` those of protobuf."""
    if isinstance(form, TextFormat):
        return TextLines(form, read_fields, make)
    if isinstance(form, ProtobufFormat):
        # Only workers with a stream of protobuf import it.
        from prism_assets.kernels.protobuf.messages import MessageType, UnreadableError

        kind = MessageType(form, names)
        return ProtobufLines(kind.to_json, kind.to_whole_json, UnreadableError)
    return JsonLines()
