"""Reads the date in a key's folders, in the layouts of Hive, Firehose and others."""

from __future__ import annotations

import re
from datetime import date

from prism_assets.domain.names import original_date

_DATE = re.compile(
    r"(?:^|/)(?:"
    # dt=2026-03-01, dt=20260301, and with an hour: dt=2026-03-01-14, dt=2026-03-01T14
    r"(?:dt|date|day)=(?P<year>\d{4})(?P<dash>-?)(?P<month>\d\d)(?P=dash)(?P<day>\d\d)(?:[-T_ ]?\d\d)?"
    r"|(?:year|y)=(?P<hive_year>\d{4})/(?:month|m)=(?P<hive_month>\d{1,2})/(?:day|d)=(?P<hive_day>\d{1,2})"
    # Unnamed folders may be any number, so only years of 1900 to 2099 count.
    r"|(?P<plain_year>(?:19|20)\d\d)/(?P<plain_month>\d\d)/(?P<plain_day>\d\d)"
    r")(?=/)",
    re.ASCII,
)
_FORMS = ("", "hive_", "plain_")


def folder_date(key: str) -> date | None:
    """Returns the first date in a key's folders, ignoring any hour after it, or None.

    Forms are `dt=YYYY-MM-DD/` (also `date=` and `day=`, without dashes, with an hour), `year=YYYY/month=MM/day=DD/` and
    `YYYY/MM/DD/`. The object's own name does not count.
    """
    for match in _DATE.finditer(key):
        for form in _FORMS:
            if match[f"{form}year"]:
                try:
                    return date(int(match[f"{form}year"]), int(match[f"{form}month"]), int(match[f"{form}day"]))
                except ValueError:  # no day of the calendar
                    continue
    return None


def day_of_key(key: str) -> date | None:
    """Returns the day in a key: the date of its writer in the object's name, or else the date in its folders."""
    return original_date(key) or folder_date(key)
