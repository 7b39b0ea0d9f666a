"""Log lines of long-running commands, for a service manager."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import datetime, timezone

from prism_assets import console
from prism_assets.json_logs import json_line, log_as_json
from prism_assets.settings import LogSettings, load


def open_log(service: str) -> Callable[[str], None]:
    """Returns a function for one line of the log, printed with the time. With PRISM_LOG_FORMAT=json all lines are JSON.

    Raises SettingsError for another format.
    """
    if load(LogSettings).log_format == "text":
        return lambda message: console.out.print(
            console.escape(f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ} {service}: {message}")
        )
    log_as_json()

    def say(message: str) -> None:
        print(json_line("info", message, service=service), file=sys.stdout, flush=True)

    return say
