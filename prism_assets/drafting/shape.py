"""Finds out whether the objects of a sample hold lines of JSON or text, or documents, and where records are."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from prism_assets.domain.errors import InvariantBroken, UnsupportedContent
from prism_assets.domain.streams.sources import step_text
from prism_assets.domain.streams.stream import DocumentFormat, ParquetFormat
from prism_assets.domain.streams.text_lines import TextFormat
from prism_assets.domain.tables.draft import has_time
from prism_assets.drafting.text_shape import text_format_of
from prism_assets.kernels.documents.blocks import DocumentBlock
from prism_assets.kernels.documents.splitter import split_documents
from prism_assets.kernels.inflate import Inflation, UnsoundError
from prism_assets.kernels.json.survey import survey
from prism_assets.kernels.messages.spool_file import spool_file_of

_HEAD = 1 << 20
SAMPLED_DOCUMENTS = 100
"""Documents of one object that are looked at."""
SAMPLED_ELEMENTS = 20
"""Elements of one array on the way to the records that are looked at."""
_DEEPEST = 8
_BEGINS = re.compile(rb'\s*\{\s*("(?:[^"\\]|\\.)*")\s*:\s*\[\s*\{')

Chunks = Callable[[], Iterator[bytes]]


def format_of(objects: Sequence[Chunks]) -> DocumentFormat | ParquetFormat | TextFormat | None:
    """Returns the format of most objects, or None for lines of JSON."""
    if objects and _is_parquet(objects[0]):
        return ParquetFormat()
    text = text_format_of([head_of(chunks) for chunks in objects])
    if text is not None:
        return text
    records = records_of(objects)
    return None if records is None else DocumentFormat(records=records)


def records_of(objects: Sequence[Chunks]) -> str | None:
    """Returns the path to the records of most objects for `format` in a table file, or None for lines of JSON."""
    found = Counter(path for chunks in objects if (path := _records_of(head_of(chunks))) is not _NOTHING)
    return found.most_common(1)[0][0] if found else None


def _is_parquet(chunks: Chunks) -> bool:
    """Whether an object is a file of Parquet, sound or not, and no sound spool object of a topic."""
    try:
        spool_file_of(chunks())
    except (InvariantBroken, UnsupportedContent):
        return True
    return False


_NOTHING = ""
"""For an object without anything."""


def head_of(chunks: Chunks) -> bytes:
    """Returns the beginning of an object's content, at most 1 MiB."""
    head = b""
    with suppress(UnsoundError, UnsupportedContent):
        for piece in Inflation(chunks()):
            head += piece
            if len(head) >= _HEAD:
                break
    return head[:_HEAD]


def _records_of(head: bytes) -> str | None:
    documents = list(islice(_documents(head), SAMPLED_DOCUMENTS))
    if not documents:
        return _records_of_large(head) if head.strip() else _NOTHING
    if all(isinstance(document, list) for document in documents):
        return "$[*]"
    ways = [way for document in documents if isinstance(document, dict) and (way := _way(document, _DEEPEST))]
    if 2 * len(ways) > len(documents):
        return _path(Counter(ways).most_common(1)[0][0])
    objects = sum(isinstance(document, dict) for document in documents)
    return "$" if objects > _lines_of(head) else None


def documents_in(head: bytes) -> Iterator[bytes]:
    """Yields the whole documents in the beginning of an object, each as one line."""
    for part in split_documents([head], (), is_cut=lambda: len(head) == _HEAD):
        if isinstance(part, DocumentBlock):
            yield from filter(None, part.data.split(b"\n"))


def _documents(head: bytes) -> Iterator[Any]:
    for line in documents_in(head):
        with suppress(ValueError, RecursionError):
            yield json.loads(line)


def _records_of_large(head: bytes) -> str | None:
    """Looks at a document that does not end within the head."""
    if head.lstrip().startswith(b"["):
        return "$[*]"
    begins = _BEGINS.match(head)
    return _path((str(json.loads(begins[1])), None)) if begins else None


def _lines_of(head: bytes) -> int:
    """Returns how many of the first lines are objects."""
    return survey(islice(head.split(b"\n"), SAMPLED_DOCUMENTS), levels=1).lines


def _way(document: dict[str, Any], depth: int) -> tuple[str | None, ...]:
    """Returns the way to the elements with a time, or nothing for a document with a time of its own, or without one."""
    if not depth or _has_time([document]):
        return ()
    ways = []
    for key, value in document.items():
        if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
            elements = value[:SAMPLED_ELEMENTS]
            deeper = filter(None, (_way(item, depth - 1) for item in elements))
            inner = () if _has_time(elements) else next(deeper, None)
            if inner is not None:
                ways.append((key, None, *inner))
    return ways[0] if len(ways) == 1 else ()


def _has_time(objects: Sequence[dict[str, Any]]) -> bool:
    return has_time(survey((json.dumps(item).encode() for item in objects), levels=1))


def _path(way: Sequence[str | None]) -> str:
    return "$" + "".join("[*]" if step is None else step_text(step) for step in way)
