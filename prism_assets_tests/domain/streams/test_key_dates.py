"""Dates in the folders of keys."""

from __future__ import annotations

from datetime import date

import pytest

from prism_assets.domain.streams.key_dates import folder_date

FIRST = date(2026, 3, 1)


@pytest.mark.parametrize(
    "key",
    [
        "events/dt=2026-03-01/x.gz",
        "dt=2026-03-01/hour=14/x.gz",
        "events/date=2026-03-01/x.gz",
        "events/day=20260301/x.gz",
        "events/dt=2026-03-01-14/x.gz",
        "events/dt=2026-03-01T14/x.gz",
        "events/year=2026/month=03/day=01/x.gz",
        "events/year=2026/month=3/day=1/hour=14/x.gz",
        "events/y=2026/m=03/d=01/x.gz",
        "events/2026/03/01/x.gz",
        "2026/03/01/14/x.gz",
        "AWSLogs/123456789012/CloudTrail/us-east-1/2026/03/01/x.json.gz",
        "events/2026/02/30/dt=2026-03-01/x.gz",
        "events/dt=2026-03-01/2026/04/01/x.gz",
    ],
)
def test_folders_name_a_date_in_the_forms_of_those_who_write_them(key: str) -> None:
    assert folder_date(key) == FIRST


@pytest.mark.parametrize(
    "key",
    [
        "events/x.gz",
        "events/dt=2026-03-01",
        "events/dt=2026-02-30/x.gz",
        "events/dt=2026-0301/x.gz",
        "events/2026/3/1/x.gz",
        "events/12026/03/01/x.gz",
        "events/1001/03/01/x.gz",
        "events/2026/03/011/x.gz",
        "events/2026/03/01.gz",
        "events/month=03/day=01/x.gz",
        "events/dt=0000-00-00/x.gz",
        "events/２026/03/01/x.gz",
        "",
    ],
)
def test_other_folders_name_none(key: str) -> None:
    assert folder_date(key) is None
