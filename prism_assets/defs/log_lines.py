"""Prevents duplicate log lines in Dagster's processes."""

from __future__ import annotations

import logging

from prism_assets.json_logs import JsonLines, is_json


def print_lines_once() -> None:
    """Gives the root logger a handler if it has none. Every Dagster process calls it through the plugin of its
    database.

    Libraries such as dagster_postgres and py4j report a lost connection by `logging.warning(…)`. Python then installs a
    handler at the root, and this handler prints every later record of Dagster a second time until the process ends. The
    handler here prints only records of loggers without a handler, as Python does by default.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(JsonLines() if is_json() else logging.Formatter(logging.BASIC_FORMAT))
    handler.addFilter(_is_printed_nowhere_else)
    root.addHandler(handler)


def _is_printed_nowhere_else(record: logging.LogRecord) -> bool:
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None and logger.parent is not None:
        if logger.handlers:
            return False
        logger = logger.parent if logger.propagate else None
    return True
