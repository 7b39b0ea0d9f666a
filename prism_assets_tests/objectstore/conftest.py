from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores


@dataclass(frozen=True)
class Bucket:
    """A separate bucket on the local S3 server, with uploads like those of services."""

    stores: Stores
    name: str
    s3: Any

    def put(self, *keys: str, body: bytes = b"hello") -> None:
        for key in keys:
            self.s3.put_object(Bucket=self.name, Key=key, Body=body)

    def keys(self, prefix: str = "", after: str | None = None) -> list[str]:
        return [item.key for item in self.stores.list(self.name, prefix, after=after)]


@pytest.fixture
def bucket(services: Mapping[str, str]) -> Bucket:
    endpoint, name = services["MOTO_ENDPOINT"], f"bucket-{random.getrandbits(40):x}"
    s3 = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    s3.create_bucket(Bucket=name)
    return Bucket(Stores(StoreConfig(endpoint=endpoint, object_tags=False, retry_seconds=0.1)), name, s3)
