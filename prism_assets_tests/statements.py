"""Counts the statements sent to PostgreSQL, because work done every few seconds must not grow unnoticed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine


@contextmanager
def counted_statements() -> Iterator[list[str]]:
    """Collects the statements of all sessions of PostgreSQL in this process."""
    asked: list[str] = []

    def note(connection: Any, _cursor: object, statement: str, *_: object) -> None:
        if connection.dialect.name == "postgresql":
            asked.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield asked
    finally:
        event.remove(Engine, "before_cursor_execute", note)
