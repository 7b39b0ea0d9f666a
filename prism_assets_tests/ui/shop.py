"""Two tables of a shop, a few days of rows, and a few broken lines, for tests and pictures of the UI."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import boto3

from prism_assets_tests.builders import a_table, as_lines, some_rows, zipped
from prism_assets_tests.defs.tables import a_folder

# No other test puts objects under prefixes of these names: in one bucket a prefix feeds one table.
ORDERS, VISITS = "shop.purchases", "shop.pageviews"
DAYS = 5
_BUCKET = "prism-staging"
_ROWS = 50


def a_shop(root: Path) -> Path:
    """The folder of table files. Of the lines of visits, nearly none may be broken."""
    visits = a_table(VISITS, bucket=_BUCKET) + "checks: {quarantine_rate: 0.001}\n"
    return a_folder(root, a_table(ORDERS, bucket=_BUCKET), visits)


def their_reports(root: Path) -> Path:
    """The program of another code location: the report of the documentation, after the purchases."""
    page = (Path(__file__).parents[2] / "docs" / "dagster-project.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    path = root / "their_reports.py"
    path.write_text(program.replace('"log", "events_catalog"', '"shop", "purchases_catalog"'))
    return path


def fill(environment: Mapping[str, str], now: datetime, days: int = DAYS) -> None:
    """Puts an object for each table and day, and one with broken lines among the visits of today."""
    s3: Any = boto3.Session().client("s3", endpoint_url=environment["PRISM_S3_ENDPOINT"])
    for name in (ORDERS, VISITS):
        prefix = name.partition(".")[2]
        for back in range(days):
            rows = as_lines(some_rows(_ROWS, now - timedelta(days=back, seconds=_ROWS)))
            broken = b"{broken\n" * 5 if (name, back) == (VISITS, 0) else b""
            s3.put_object(Bucket=_BUCKET, Key=f"{prefix}/{back:06}.gz", Body=zipped(rows + broken))
