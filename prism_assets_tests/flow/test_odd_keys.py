"""Objects with keys that are no paths, in a real bucket: discovered, converted and repaired like all others."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import boto3
import pytest

from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
MARKERS = ["events/", "events/2026/"]
KEYS = ["/x", "./x", "../x", "%2F", "a+b c", "é😀", "tab\there", "a//b.json", "2026/x", "2026/y/", "zz"]


@pytest.fixture
def remote(world: World, services: Mapping[str, str]) -> tuple[StageContext, Any]:
    """A platform with lake and staging objects in one real bucket, and uploads like those of services."""
    endpoint, bucket = services["MOTO_ENDPOINT"], f"bucket-{random.getrandbits(40):x}"
    s3: Any = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    s3.create_bucket(Bucket=bucket)
    there = world.in_bucket(endpoint, bucket)
    there.apply(a_table(bucket=bucket))
    return there.context, s3


def test_objects_are_found_converted_and_repaired_whatever_their_keys(remote: tuple[StageContext, Any]) -> None:
    context, s3 = remote
    bucket = context.lake.bucket
    for marker in MARKERS:
        s3.put_object(Bucket=bucket, Key=marker, Body=b"")
    for key in KEYS:
        s3.put_object(Bucket=bucket, Key=f"events/{key}", Body=zipped(as_lines(some_rows(3, utc(NOON)))))
    (scan,) = run_discover(context, now=utc(NOON)).scans
    assert (scan.error, scan.new, scan.unknown) == (None, len(KEYS), 0)
    assert run_discover(context, now=utc(NOON)).new == 0

    report = run_stream(context, now=utc(NOON))
    assert (report.rows_out, report.errors) == (3 * len(KEYS), ())

    small = [item.key for item in context.stores.list(bucket, "lake/") if item.key.endswith(".parquet")]
    assert len(small) == len(KEYS)
    before = {key: context.stores.get(bucket, key) for key in small}
    context.stores.delete(bucket, small)
    repaired = run_repair(context)
    assert (repaired.repaired, repaired.errors) == (len(KEYS), ())
    assert {key: context.stores.get(bucket, key) for key in small} == before
