"""The lines of a sample: some of each of some objects, evenly, within a bound of memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from prism_assets.domain.errors import WrongUse
from prism_assets.kernels.inflate import Inflation, UnsoundError
from prism_assets.kernels.json.blocks import Block, LongLine, find_lines, split
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores

MOST_LINES = 20_000
MOST_OBJECTS = 32
MOST_BYTES = 128 << 20
"""Of content, decompressed, in all objects."""
_MOST_LISTED = 20_000
_CHUNK = 1 << 20
_Item = TypeVar("_Item")
_URL = re.compile(r"s3://(?P<bucket>[^/]+)/(?P<key>.*)")


@dataclass(frozen=True, kw_only=True)
class SampleLines:
    """Lines of a sample without their ends, of how many objects, and how many more of them were too long.

    `prefix` is where the objects lie, if that is in S3.
    """

    lines: Sequence[bytes]
    objects: int
    too_long: int
    prefix: str | None = None


def read_sample(place: str, config: StoreConfig) -> SampleLines:
    """Lines of a file, of the files of a folder, of `s3://bucket/key`, or of the objects below `s3://bucket/prefix`.

    At most 20,000 lines of 32 objects, evenly chosen; of each the first part, so that no more than 128 MiB are read.
    WrongUse if nothing is there. A line that the part ends in is left out, and so is one of more than 16 MiB.
    """
    match = _URL.fullmatch(place)
    if match is None:
        return _sample([_of_file(path) for path in _evenly(_files(Path(place)), MOST_OBJECTS)], None)
    stores = Stores(config)
    bucket, key = match["bucket"], match["key"]
    keys = _evenly(_keys(stores, bucket, key), MOST_OBJECTS)
    if not keys:
        raise WrongUse(f"{place}: there is no object, and none below it")
    prefix = f"s3://{bucket}/{key[: key.rfind('/') + 1]}"
    return _sample([stores.get_chunks(bucket, item, chunk=_CHUNK) for item in keys], prefix)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise WrongUse(f"{path}: there is no such file; name a file, a folder or s3://bucket/prefix/")
    if path.is_file():
        return [path]
    found = sorted(item for item in islice(path.rglob("*"), _MOST_LISTED) if item.is_file())
    if not found:
        raise WrongUse(f"{path}: the folder holds no file")
    return found


def _of_file(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _keys(stores: Stores, bucket: str, key: str) -> list[str]:
    """The object itself, or those below the prefix; S3 lists by whole folders here, so the rest of a name filters."""
    folder = key[: key.rfind("/") + 1]
    found = [item.key for item in islice(stores.list(bucket, folder), _MOST_LISTED) if item.content_length]
    return [key] if key in found else [item for item in found if item.startswith(key)]


def _evenly(items: Sequence[_Item], most: int) -> Sequence[_Item]:
    """All, or so many with the same distance between them, the first and the last among them."""
    if len(items) <= most:
        return items
    return [items[index * (len(items) - 1) // (most - 1)] for index in range(most)]


def _sample(contents: Sequence[Iterable[bytes]], prefix: str | None) -> SampleLines:
    lines: list[bytes] = []
    too_long = 0
    for chunks in contents:
        found: list[bytes] = []
        for part in _parts(chunks, MOST_BYTES // len(contents)):
            if isinstance(part, Block):
                found += _lines(part)
            else:
                too_long += 1
        lines += _evenly(found, max(2, MOST_LINES // len(contents)))
    return SampleLines(lines=lines, objects=len(contents), too_long=too_long, prefix=prefix)


def _lines(block: Block) -> Iterator[bytes]:
    lines, _ = find_lines(block)
    for start, end in zip(lines.starts.tolist(), lines.ends.tolist(), strict=True):
        yield block.data[start:end]


def _parts(chunks: Iterable[bytes], most: int) -> Iterator[Block | LongLine]:
    """The whole lines that begin an object, till so many bytes are read; what cannot be decompressed ends it, too."""
    with suppress(_EnoughError, UnsoundError):
        yield from split(_bounded(Inflation(chunks), most))


class _EnoughError(Exception):
    """No more is wanted: raised and not returned, as the line that is under way is not whole."""


def _bounded(pieces: Iterable[bytes], most: int) -> Iterator[bytes]:
    for piece in pieces:
        yield piece[:most]
        most -= len(piece)
        if most <= 0:
            raise _EnoughError
