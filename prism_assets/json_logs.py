"""Log lines as JSON: one object a line, for `PRISM_LOG_FORMAT=json`.

A line has `time`, `level` and `message`, and as far as they are known `logger`, `table`, `day`, `batch` and `worker`.
`log_fields` names the last four for all lines of a block, also for lines of libraries.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timezone

from prism_assets.domain.errors import SettingsError
from prism_assets.settings import LogSettings, load

_FIELDS: ContextVar[Mapping[str, str]] = ContextVar("prism_log_fields")
_OWN = "prism_assets"


def is_json() -> bool:
    """Whether log lines are JSON. Errors are printed also where the settings are wrong, then as text."""
    try:
        return load(LogSettings).log_format != "text"
    except SettingsError:
        return False


@contextmanager
def log_fields(**fields: object) -> Iterator[None]:
    """Adds fields to the lines of this thread while the block runs. None adds nothing."""
    known = {name: str(value) for name, value in fields.items() if value is not None}
    token = _FIELDS.set({**_FIELDS.get({}), **known})
    try:
        yield
    finally:
        _FIELDS.reset(token)


def json_line(level: str, message: str, time: datetime | None = None, **more: str) -> str:
    """Returns one line of ASCII, without its end: names of objects may hold text that no output can encode."""
    moment = time or datetime.now(timezone.utc)
    line = {"time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"), "level": level}
    return json.dumps({**line, "message": message, **more, **_FIELDS.get({})})


class JsonLines(logging.Formatter):
    """Formats records of `logging`."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns one line. A traceback is in the field `error`."""
        more = {"error": self.formatException(record.exc_info)} if record.exc_info else {}
        time = datetime.fromtimestamp(record.created, timezone.utc)
        return json_line(record.levelname.lower(), record.getMessage(), time, logger=record.name, **more)


def log_as_json() -> None:
    """Sends all records to standard error as JSON: of prism from INFO on, of libraries from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger(_OWN).setLevel(logging.INFO)
