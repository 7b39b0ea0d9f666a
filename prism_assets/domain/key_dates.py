"""The date that folders in the key of an object name, as Hive, Firehose and others lay out what they write."""

from __future__ import annotations

import re
from datetime import date

_DATE = re.compile(
    r"(?:^|/)(?:"
    # dt=2026-03-01, dt=20260301, and with an hour after it: dt=2026-03-01-14, dt=2026-03-01T14
    r"(?:dt|date|day)=(?P<year>\d{4})(?P<dash>-?)(?P<month>\d\d)(?P=dash)(?P<day>\d\d)(?:[-T_ ]?\d\d)?"
    r"|(?:year|y)=(?P<hive_year>\d{4})/(?:month|m)=(?P<hive_month>\d{1,2})/(?:day|d)=(?P<hive_day>\d{1,2})"
    # Folders without names may be numbers of anything: a year of another century is none.
    r"|(?P<plain_year>(?:19|20)\d\d)/(?P<plain_month>\d\d)/(?P<plain_day>\d\d)"
    r")(?=/)",
    re.ASCII,
)
_FORMS = ("", "hive_", "plain_")


def folder_date(key: str) -> date | None:
    """Returns the first date that folders of a key name, whatever hour follows; None where there is none.

    Forms are `dt=YYYY-MM-DD/` (also `date=` and `day=`, without dashes, with an hour), `year=YYYY/month=MM/day=DD/` and
    `YYYY/MM/DD/`. The name of the object itself is no folder.
    """
    for match in _DATE.finditer(key):
        for form in _FORMS:
            if match[f"{form}year"]:
                try:
                    return date(int(match[f"{form}year"]), int(match[f"{form}month"]), int(match[f"{form}day"]))
                except ValueError:  # no day of the calendar
                    continue
    return None
