"""Reads lines in quarantine."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

from prism_assets.domain.errors import ErasureMissing, InvariantBroken, WrongUse
from prism_assets.metadata.intake.quarantine import load_keys, load_table_id
from prism_assets.stages.context import StageContext
from prism_assets.stages.erasure_records import compare_erasures

_GZIP = 31
_CHUNK_BYTES = 1 << 20


def quarantined_lines(context: StageContext, staging_object_id: int) -> Iterator[bytes]:
    """Yields the quarantined lines of a staging object as JSON Lines, in pieces, for `prism quarantine show`.

    Raises WrongUse if there are none, and ErasureMissing if the table lacks an erasure that may cover some lines.
    """
    context.check_lake()
    held = compare_erasures(context)
    with context.database.begin() as connection:
        table_id = load_table_id(connection, staging_object_id)
        if table_id is not None and table_id in held:
            raise ErasureMissing("; ".join(map(str, held[table_id])))
        key = load_keys(connection, [staging_object_id]).get(staging_object_id)
    if key is None:
        raise WrongUse(
            f"no line of staging object {staging_object_id} is in quarantine, or they were kept for their "
            f"{context.settings.quarantine_days} days"
        )
    return _inflated(context, key)


def as_document(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yields JSON Lines as one array, for `prism quarantine show --json`. A line break stands only after a line."""
    yield b"["
    end = b""
    for piece in filter(None, pieces):
        lines = end + piece
        end = b"\n" if lines.endswith(b"\n") else b""
        yield lines.removesuffix(b"\n").replace(b"\n", b",\n")
    yield b"]\n"


def _inflated(context: StageContext, key: str) -> Iterator[bytes]:
    inflater = zlib.decompressobj(_GZIP)
    try:
        for chunk in context.stores.get_chunks(context.lake.bucket, key):
            yield inflater.decompress(chunk, _CHUNK_BYTES)
            while inflater.unconsumed_tail:
                yield inflater.decompress(inflater.unconsumed_tail, _CHUNK_BYTES)
    except zlib.error as error:
        raise InvariantBroken(f"{key} is damaged: {error}") from error
