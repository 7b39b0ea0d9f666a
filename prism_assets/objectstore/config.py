"""Types shared by the clients of the object store: its address, and an object's entry in a listing."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """How to reach the object store. Holds no secret: each process takes credentials from its environment."""

    endpoint: str | None = None
    region: str = "us-east-1"
    local_root: str | None = None
    """If set, buckets are folders below this path. Otherwise they are S3 buckets."""
    object_tags: bool = True
    retry_seconds: float = 30.0
    silence_seconds: float = 20.0
    """How long a server may stay silent in the middle of an answer."""

    def to_json(self) -> str:
        """Returns one line of JSON for tasks."""
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> StoreConfig:
        """Reads the output of `to_json`."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class ObjectInfo:
    """One object in a listing. `content_length` is in bytes."""

    key: str
    content_length: int
    etag: str | None
    last_modified: datetime
