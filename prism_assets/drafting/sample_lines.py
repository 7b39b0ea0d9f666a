"""Reads lines of a sample: some lines of some objects, evenly spread, within a memory limit."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TypeVar

from prism_assets.domain.errors import UnsupportedContent, WrongUse
from prism_assets.domain.streams.intake import reason_left_out
from prism_assets.domain.streams.stream import Format, ParquetFormat, Stream
from prism_assets.drafting.shape import format_of
from prism_assets.kernels.first_lines import FirstLines
from prism_assets.kernels.inflate import Inflation, UnsoundError
from prism_assets.kernels.json.blocks import Block, LongLine, find_lines
from prism_assets.kernels.json.picks import Around
from prism_assets.kernels.messages.blocks import SpoolSplitter
from prism_assets.kernels.messages.formats import lines_of
from prism_assets.kernels.messages.spool_file import spool_file_of
from prism_assets.kernels.text_lines.divider import Divider
from prism_assets.objectstore.config import ObjectInfo, StoreConfig
from prism_assets.objectstore.stores import Stores

MOST_LINES = 20_000
MOST_OBJECTS = 32
MOST_BYTES = 128 << 20
"""Decompressed bytes over all objects."""
_MOST_LISTED = 20_000
_CHUNK = 1 << 20
_Item = TypeVar("_Item")
_URL = re.compile(r"s3://(?P<bucket>[^/]+)/(?P<key>.*)")


@dataclass(frozen=True, kw_only=True)
class SampleObject:
    """An object of a sample, or a file."""

    key: str
    """The object's key, or the file's name."""
    chunks: Callable[[], Iterator[bytes]]
    """Opens the content."""
    bucket: str | None = None
    stored: datetime | None = None
    """When the bucket received the object. None for a file."""
    path: Path | None = None

    @property
    def place(self) -> str:
        """The path or S3 URL for people."""
        return str(self.path) if self.path else f"s3://{self.bucket}/{self.key}"


@dataclass(frozen=True, kw_only=True)
class SampleLines:
    """Lines of a sample without line ends."""

    lines: Sequence[bytes]
    objects: int
    """How many objects were read."""
    too_long: int
    """How many further lines were too long."""
    unsound: Mapping[str, int]
    """Counts of truncated or damaged objects, by the reason a conversion would quarantine them for."""
    prefix: str | None = None
    """The objects' folder in S3, or None for files."""
    format: Format | None = None
    """The format of the objects; None for lines of JSON."""


def find_objects(place: str, config: StoreConfig) -> Sequence[SampleObject]:
    """Returns a file, the files in a folder, `s3://bucket/key`, or the objects below `s3://bucket/prefix`.

    Chooses at most 32, evenly spread. Raises WrongUse if nothing is found.
    """
    if not place:  # Path("") would mean the current folder
        raise WrongUse("--sample is empty; name a file, a folder or s3://bucket/prefix/")
    match = _URL.fullmatch(place)
    if match is None:
        paths = _evenly(_files(Path(place)), MOST_OBJECTS)
        return [SampleObject(key=path.name, path=path, chunks=partial(_file_chunks, path)) for path in paths]
    stores, bucket = Stores(config), match["bucket"]
    found = _evenly(_listed(stores, bucket, match["key"]), MOST_OBJECTS)
    if not found:
        raise WrongUse(f"{place}: there is no object, and none below it")
    return [object_at(stores, bucket, item.key, item.last_modified) for item in found]


def object_at(stores: Stores, bucket: str, key: str, stored: datetime | None = None) -> SampleObject:
    """Returns an object in S3."""
    chunks = partial(stores.get_chunks, bucket, key, chunk=_CHUNK)
    return SampleObject(key=key, chunks=chunks, bucket=bucket, stored=stored)


def read_sample(place: str, objects: Sequence[SampleObject]) -> SampleLines:
    """Returns at most 20,000 lines of the objects found at a place, evenly spread.

    Reads the beginning of each object, 128 MiB over all objects. Leaves out a line cut off by this limit, and lines
    over 16 MiB. In objects with documents, records are the lines. Lines of text come as objects of their fields.
    """
    found = read_lines(objects, format_of([item.chunks for item in objects]))
    match = _URL.fullmatch(place)
    prefix = f"s3://{match['bucket']}/{match['key'][: match['key'].rfind('/') + 1]}" if match else None
    return replace(found, prefix=prefix)


def read_lines(objects: Sequence[SampleObject], form: Format | None = None) -> SampleLines:
    """Returns lines of these objects as lines of JSON, read by a format.

    Truncated or damaged objects contribute the lines in front of the damage. Messages of spool objects are lines.
    """
    lines: list[bytes] = []
    too_long = 0
    unsound = Counter[str]()
    for item in objects:
        found: list[bytes] = []
        try:
            for part in _parts(FirstLines(MOST_BYTES // len(objects)), item.chunks(), form):
                if isinstance(part, Block):
                    found += _lines(part)
                else:
                    too_long += 1
        except UnsoundError as error:
            unsound[error.reason] += 1
        except UnsupportedContent as error:
            raise WrongUse(f"{item.key}: {error}") from None
        lines += _evenly(found, max(2, MOST_LINES // len(objects)))
    return SampleLines(lines=lines, objects=len(objects), too_long=too_long, unsound=unsound, format=form)


def _parts(first: FirstLines, chunks: Iterator[bytes], form: Format | None) -> Iterator[Block | LongLine]:
    if isinstance(form, ParquetFormat):
        return first.split(Inflation(chunks, binary=True), form)
    spool, pieces = spool_file_of(chunks)
    if spool is None:
        return first.split(Inflation(pieces), form)
    return first.split_spool(SpoolSplitter(spool, lines_of(form, Divider), "filter", Around()))


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise WrongUse(f"{path}: there is no such file; name a file, a folder or s3://bucket/prefix/")
    if path.is_file():
        return [path]
    found = sorted(item for item in islice(path.rglob("*"), _MOST_LISTED) if item.is_file())
    if not found:
        raise WrongUse(f"{path}: the folder holds no file")
    return found


def _file_chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _listed(stores: Stores, bucket: str, key: str) -> list[ObjectInfo]:
    """Returns the object itself, or the objects below the prefix that a stream would read.

    The store lists whole folders, so the last part of the prefix filters here.
    """
    folder = key[: key.rfind("/") + 1]
    found = [item for item in islice(stores.list(bucket, folder), _MOST_LISTED) if item.content_length]
    itself = [item for item in found if item.key == key]
    stream = Stream(name="sample", bucket=bucket, key_prefix=folder)
    below = [item for item in found if item.key.startswith(key)]
    return itself or [item for item in below if not reason_left_out(stream, item.key, item.content_length)]


def _evenly(items: Sequence[_Item], most: int) -> Sequence[_Item]:
    """Returns all items, or `most` evenly spaced ones with the first and the last."""
    if len(items) <= most:
        return items
    return [items[index * (len(items) - 1) // (most - 1)] for index in range(most)]


def _lines(block: Block) -> Iterator[bytes]:
    lines = find_lines(block)
    for start, end in zip(lines.starts.tolist(), lines.ends.tolist(), strict=True):
        yield block.data[start:end]
