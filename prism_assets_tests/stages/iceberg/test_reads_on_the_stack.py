"""Spark, PyIceberg and a held snapshot read from a real S3 server while merges replace their objects."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest

from prism_assets.platform import build_context
from prism_assets.settings import Settings
from prism_assets.stages.apply.run import run_apply
from prism_assets_tests.builders import a_table, as_lines, utc, zipped
from prism_assets_tests.defs.tables import a_folder
from prism_assets_tests.stages.iceberg.pollers import Read, polled, with_a_held_snapshot, with_pyiceberg
from prism_assets_tests.stages.iceberg.test_reads_never_shrink import MERGE, rounds
from prism_local.readers.spark_catalog import spark_catalog

# pyspark leaves sockets open and calls deprecated code.
pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("default")]

TABLE = "polled.clicks"
REPLACES, LONG_REPLACES = 4, 100
_PATIENCE = 120.0


@contextmanager
def with_spark(settings: Settings) -> Iterator[Read]:
    """Reads by Iceberg's own client, which asks the catalog for each query."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(settings.spark_remote).create()
    for name, value in spark_catalog(settings).items():
        spark.conf.set(f"spark.sql.catalog.prism{name}", value)
    try:
        yield lambda: [row[0] for row in spark.sql("SELECT id FROM prism.polled_iceberg.clicks").collect()]
    finally:
        spark.stop()


def test_no_read_of_spark_is_short_and_none_double(
    stack: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, long: bool
) -> None:
    for name, value in stack.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    context = build_context(settings.model_copy(update={"spark_remote": "in-process"}))
    text = a_table(TABLE, bucket="prism-staging", iceberg="{keep_hours: 1}", merge=MERGE)
    context.database.migrate()
    run_apply(context, a_folder(tmp_path, text.replace("staging/clicks/", "staging/polled/")), utc("2026-03-01T00:00"))
    s3: Any = boto3.Session().client("s3", endpoint_url=stack["PRISM_S3_ENDPOINT"])
    numbers = itertools.count(1)

    def drop(rows: list[dict[str, Any]]) -> None:
        s3.put_object(Bucket="prism-staging", Key=f"polled/{next(numbers):06}.gz", Body=zipped(as_lines(rows)))

    ids = rounds(context, TABLE, drop, 1)  # so that there is a table
    readers = (
        partial(with_spark, settings),
        partial(with_pyiceberg, settings, TABLE),
        partial(with_a_held_snapshot, settings, TABLE),
    )
    with polled(*readers) as pollers:
        assert all(poller.looked.wait(_PATIENCE) for poller in pollers)
        ids += rounds(context, TABLE, drop, LONG_REPLACES if long else REPLACES, start="2026-03-02T10:00")
    for poller in pollers:
        assert poller.faults == (set(), set(), [])
        assert len(set(poller.looks)) > 1, "the client looked often enough to see the table grow"
    with with_pyiceberg(settings, TABLE) as read:
        assert sorted(read()) == sorted(ids)
    context.database.dispose()
