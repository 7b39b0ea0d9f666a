"""The surroundings of Dagster in a test: services that write objects, and analysts who read rows."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

import boto3

from prism_assets.domain.errors import WrongUse
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import run_query
from prism_assets.settings import Settings
from prism_assets_tests.builders import as_lines, zipped
from prism_assets_tests.defs.server import DagsterServer

BUCKET = "prism-staging"


class Outside:
    """Writes objects for one table and reads its rows, with the settings of the test's environment."""

    def __init__(self, environment: Mapping[str, str], table: str) -> None:
        self._s3: Any = boto3.Session().client("s3", endpoint_url=environment["PRISM_S3_ENDPOINT"])
        self._reader = LakeReader(Settings())
        self._table = table
        self._name, self._count = uuid.uuid4().hex, 0  # several services write for one table

    def drop(self, rows: list[dict[str, Any]]) -> list[int]:
        """Writes one staging object, and returns its ids."""
        self._count += 1
        key = f"{self._table.partition('.')[2]}/{self._name}-{self._count:06}.gz"
        self._s3.put_object(Bucket=BUCKET, Key=key, Body=zipped(as_lines(rows)))
        return [row["id"] for row in rows]

    def ids(self) -> list[int]:
        """All ids a reader sees, sorted, doubles included."""
        try:
            return sorted(row[0] for row in run_query(self._reader, f"SELECT id FROM {self._table}").rows)
        except WrongUse:
            return []  # the catalog does not know the table yet

    def seconds_until(self, ids: list[int], server: DagsterServer, patience: float) -> float:
        """Returns the time until exactly these ids are readable. Fails the test if it takes longer."""
        begun = time.monotonic()
        while time.monotonic() - begun < patience:
            if (found := self.ids()) == ids:
                return time.monotonic() - begun
            time.sleep(0.5)
        raise AssertionError(f"{len(found)} of {len(ids)} rows are readable:\n{server.log()[-6000:]}")
