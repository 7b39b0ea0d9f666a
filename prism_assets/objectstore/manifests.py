"""The Redshift manifest: an explicit list of the objects of one partition, with exact lengths."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files.data_file import DataFile


@dataclass(frozen=True, order=True)
class ManifestEntry:
    """One object of a partition. `content_length` is in bytes; Redshift answers HTTP 416 if it is wrong."""

    url: str
    content_length: int


def write_manifest(files: Sequence[DataFile]) -> bytes:
    """Renders files in the order given. Raises InvariantBroken if an object occurs twice, because Redshift would read
    it twice.
    """
    if len({file.url for file in files}) != len(files):
        raise InvariantBroken("a manifest would name an object twice")
    entries = [{"url": file.url, "mandatory": True, "meta": {"content_length": file.content_length}} for file in files]
    return json.dumps({"entries": entries}, separators=(",", ":")).encode()


def read_manifest(body: bytes) -> list[ManifestEntry]:
    """Reads a manifest. Raises InvariantBroken if the body is no manifest or an entry lacks its length."""
    try:
        document: dict[str, Any] = json.loads(body)
        return [ManifestEntry(entry["url"], int(entry["meta"]["content_length"])) for entry in document["entries"]]
    except (ValueError, KeyError, TypeError) as error:
        raise InvariantBroken(f"this is not a manifest: {error!r}") from error
