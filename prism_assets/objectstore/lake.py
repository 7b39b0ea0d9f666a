"""The lake: the bucket and prefix of all objects of all tables, and the address of its store."""

from __future__ import annotations

import json
from dataclasses import dataclass

from prism_assets.domain.files.keys import TableKeys
from prism_assets.domain.installation import Place
from prism_assets.domain.tables.definition import TableDefinition
from prism_assets.objectstore.config import StoreConfig


@dataclass(frozen=True)
class Lake:
    """Where the lake is. Holds no secret, so tasks may carry it."""

    bucket: str
    prefix: str
    store: StoreConfig

    @property
    def place(self) -> Place:
        """Bucket, prefix and store address for messages to people."""
        endpoint = self.store.local_root or self.store.endpoint or f"AWS {self.store.region}"
        return Place(bucket=self.bucket, prefix=self.prefix, endpoint=endpoint)

    def keys(self, table: TableDefinition) -> TableKeys:
        """The keys of one table."""
        return TableKeys(self.bucket, self.prefix, table.name)

    def url(self, key: str) -> str:
        """`s3://bucket/key`."""
        return f"s3://{self.bucket}/{key}"

    def to_json(self) -> str:
        """Returns one line of JSON for `from_json`."""
        return json.dumps({"bucket": self.bucket, "prefix": self.prefix, "store": self.store.to_json()})

    @classmethod
    def from_json(cls, text: str) -> Lake:
        """Reads the output of `to_json`."""
        document = json.loads(text)
        return cls(document["bucket"], document["prefix"], StoreConfig.from_json(document["store"]))
