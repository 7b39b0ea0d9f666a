"""What the clients of the object store share: how it is reached, and what a listing says about an object."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """How to reach the object store. Holds no secret: credentials come from the environment of each process.

    With `local_root` set, buckets are folders below it; otherwise they are S3 buckets. `silence_seconds` is how long a
    server may say nothing in the middle of an answer.
    """

    endpoint: str | None = None
    region: str = "us-east-1"
    local_root: str | None = None
    object_tags: bool = True
    retry_seconds: float = 30.0
    silence_seconds: float = 20.0

    def to_json(self) -> str:
        """One line of JSON that travels to tasks."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StoreConfig:
        """Reads what `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class ObjectInfo:
    """What a listing says about one object; the length is in bytes."""

    key: str
    content_length: int
    etag: str | None
    last_modified: datetime
