"""The lines to paste into readers: they read the table, and tell nobody's password."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
from dagster import MarkdownMetadataValue

from prism_assets.defs.assets import iceberg_snippets
from prism_assets.defs.assets.iceberg_snippets import snippets
from prism_assets.platform import build_context
from prism_assets.publishers.iceberg import catalogs
from prism_assets.settings import Settings
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc, zipped
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"
ON_AWS: dict[str, Any] = {
    "database_url": "postgresql://me:hush%2Fhush@db.example:6432/prism?sslmode=require",
    "bucket": "a-bucket",
    "prefix": "lake/",
}


def blocks(shown: MarkdownMetadataValue) -> dict[str, str]:
    """The code by the line above it."""
    return dict(re.findall(r"^([^\n]+)\n```\w+\n(.+?)\n```$", shown.value, re.MULTILINE | re.DOTALL))


def of(settings: Settings) -> dict[str, str]:
    return blocks(snippets(settings, "log_iceberg.events", "s3://a-bucket/lake/metadata/1.metadata.json"))


@pytest.fixture
def remote(world: World, services: Mapping[str, str]) -> Iterator[World]:
    """A lake in a real bucket, with a published table of three rows."""
    endpoint, bucket = services["MOTO_ENDPOINT"], f"bucket-{random.getrandbits(40):x}"
    s3: Any = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    s3.create_bucket(Bucket=bucket)
    where = {"bucket": bucket, "prefix": "lake/", "local_root": None, "s3_endpoint": endpoint, "object_tags": False}
    settings = world.settings.model_copy(update=where)
    there = replace(world, settings=settings, context=build_context(settings))
    there.apply(a_table(bucket=bucket, iceberg="true"))
    s3.put_object(Bucket=bucket, Key="events/1.gz", Body=zipped(as_lines(some_rows(3, utc(NOON)))))
    there.stream(NOON)
    there.iceberg(NOON)
    yield there
    there.close()


def test_the_lines_for_pyiceberg_read_the_table(remote: World, monkeypatch: pytest.MonkeyPatch) -> None:
    report = remote.iceberg(NOON).tables[0]
    assert report.metadata_location is not None
    code = blocks(snippets(remote.settings, report.identifier, report.metadata_location))["PyIceberg"]
    url = urlsplit(remote.settings.database_url.get_secret_value())
    monkeypatch.setenv("PGUSER", url.username or "")
    monkeypatch.setenv("PGPASSWORD", url.password or "")
    found: dict[str, Any] = {}
    exec(code, found)
    assert found["rows"].num_rows == 3
    found["catalog"].close()


def test_readers_are_told_where_the_catalog_is_and_no_password_nor_user() -> None:
    shown = of(Settings(**ON_AWS))
    assert shown.keys() == {
        "Spark", "Trino, etc/catalog/prism.properties", "Trino", "DuckDB, this snapshot", "PyIceberg",
    }  # fmt: skip
    for text in shown.values():
        assert "hush" not in text
        assert "me:" not in text
    for name in ("Spark", "Trino, etc/catalog/prism.properties"):
        assert "jdbc:postgresql://db.example:6432/prism?sslmode=require" in shown[name]
        assert "s3://a-bucket/lake/" in shown[name]
    assert '"uri": "postgresql+psycopg://db.example:6432/prism?sslmode=require"' in shown["PyIceberg"]
    for name in ("Spark", "Trino", "PyIceberg"):
        assert "log_iceberg.events" in shown[name]
    assert "iceberg_scan('s3://a-bucket/lake/metadata/1.metadata.json')" in shown["DuckDB, this snapshot"]


def test_the_address_of_a_store_is_named_only_where_it_is_not_aws() -> None:
    assert not any("endpoint" in text.lower() for text in of(Settings(**ON_AWS)).values())
    other = of(Settings(**ON_AWS, s3_endpoint="http://127.0.0.1:9000"))
    assert "ENDPOINT '127.0.0.1:9000', URL_STYLE 'path', USE_SSL false" in other["DuckDB, this snapshot"]
    for name in ("Spark", "Trino, etc/catalog/prism.properties", "PyIceberg"):
        assert "http://127.0.0.1:9000" in other[name]


def test_the_catalog_has_the_name_that_it_has_in_postgresql() -> None:
    """Spark and Trino look for tables under it: with another one they find none."""
    assert iceberg_snippets.CATALOG == catalogs.CATALOG
