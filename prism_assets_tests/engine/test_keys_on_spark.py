"""Keys of all kinds that a real S3 server on disk takes, as tasks of a Spark job read them."""

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
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import a_table, as_lines, some_rows, zipped
from prism_assets_tests.defs.tables import a_folder

# pyspark leaves sockets open and calls deprecated code.
pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("default")]

TABLE = "keyed.clicks"
NOW = datetime.now(timezone.utc)
KEYS = ["plain.gz", "a+b c.gz", "%2F.gz", "é😀.gz", "tab\there.gz", "2026/x.gz", "zz.gz"]


def test_objects_of_a_real_server_are_found_and_read_under_their_keys(
    stack: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in stack.items():
        monkeypatch.setenv(name, value)
    context = build_context(Settings())
    folder = a_folder(tmp_path, a_table(TABLE, bucket="prism-staging").replace("staging/clicks/", "staging/keyed/"))
    context.database.migrate()
    run_apply(context, folder, NOW)
    s3: Any = boto3.Session().client("s3", endpoint_url=stack["PRISM_S3_ENDPOINT"])
    s3.put_object(Bucket="prism-staging", Key="keyed/2026/", Body=b"")
    for key in KEYS:
        body = zipped(as_lines(some_rows(50, NOW.replace(minute=0))))
        s3.put_object(Bucket="prism-staging", Key=f"keyed/{key}", Body=body)
    (scan,) = run_discover(context, now=NOW, names=[TABLE]).scans
    assert (scan.error, scan.new, scan.unknown) == (None, len(KEYS), 0)
    keys = [item.key for item in context.stores.list("prism-staging", "keyed/")]
    assert [key for key in keys if not key.endswith("/")] == sorted(f"keyed/{key}" for key in KEYS)
    behind = [item.key for item in context.stores.list("prism-staging", "keyed/", after="keyed/plain.gz")]
    assert behind == [key for key in keys if key > "keyed/plain.gz"]
    report = run_stream(context, now=NOW, names=[TABLE])
    assert (report.rows_out, report.errors) == (50 * len(KEYS), ())
    context.database.dispose()
