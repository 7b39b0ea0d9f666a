"""Keeps the log of Dagster's processes at one line for each record."""

from __future__ import annotations

import logging


def print_lines_once() -> None:
    """Gives the root logger a handler, if it has none. Every process of Dagster calls it through its database's plugin.

    Libraries such as dagster_postgres and py4j report a lost connection by `logging.warning(…)`. Python then installs
    a handler at the root that prints every later record of Dagster a second time, for as long as the process lives.
    The handler here prints only records of loggers that have no handler of their own, as Python does by default.
    """
    root = logging.getLogger()
    if root.handlers:
        return
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    handler.addFilter(_is_printed_nowhere_else)
    root.addHandler(handler)


def _is_printed_nowhere_else(record: logging.LogRecord) -> bool:
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None and logger.parent is not None:
        if logger.handlers:
            return False
        logger = logger.parent if logger.propagate else None
    return True
