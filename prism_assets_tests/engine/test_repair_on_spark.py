"""A repair as it runs in production: tasks of a Spark job, over a real S3 server."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import boto3
import pytest

from prism_assets.platform import build_context
from prism_assets.settings import Settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.repair.run import run_repair
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, as_lines, some_rows, zipped
from prism_assets_tests.defs.tables import a_folder

# pyspark leaves sockets open and calls deprecated code.
pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("default")]

TABLE = "mended.clicks"
NOW = datetime.now(timezone.utc)


def small_objects(context: StageContext) -> dict[str, bytes]:
    prefix = context.lake.keys(context.choose_tables([TABLE])[0]).root
    keys = [item.key for item in context.stores.list(context.lake.bucket, prefix)]
    return {key: context.stores.get(context.lake.bucket, key) for key in keys}


def test_missing_and_damaged_objects_come_back_byte_by_byte(
    stack: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stack.items():
        monkeypatch.setenv(name, value)
    context = build_context(Settings())
    folder = a_folder(tmp_path, a_table(TABLE, bucket="prism-staging").replace("staging/clicks/", "staging/mended/"))
    context.database.migrate()
    run_apply(context, folder, NOW)
    s3: Any = boto3.Session().client("s3", endpoint_url=stack["PRISM_S3_ENDPOINT"])
    for number in range(4):
        body = zipped(as_lines(some_rows(50, NOW.replace(minute=0))))
        s3.put_object(Bucket="prism-staging", Key=f"mended/{number}.gz", Body=body)
    run_discover(context, now=NOW, names=[TABLE])
    run_stream(context, now=NOW, names=[TABLE])
    before = small_objects(context)
    first, second, third, _ = sorted(before)
    context.stores.delete(context.lake.bucket, [first])
    context.stores.put(context.lake.bucket, second, b"torn")
    context.stores.put(context.lake.bucket, third, b"\0" * len(before[third]))
    report = run_repair(context, names=[TABLE], deep=True)
    assert (report.checked, report.missing, report.damaged, report.repaired) == (4, 1, 2, 3)
    assert report.errors == ()
    assert small_objects(context) == before
    context.database.dispose()
