"""Answers of Trino, for its two connectors. Its dialect has `UNNEST` after FROM only, with a column for each field."""

from __future__ import annotations

from importlib import metadata
from typing import Any


class Answers:
    """Asks a connection."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def version(self) -> str:
        """Returns the versions of server and client."""
        server = self.query("SELECT node_version FROM system.runtime.nodes")[0][0]
        return f"{server} (trino {metadata.version('trino')})"

    def answer(self, asked: dict[str, Any], source: str) -> list[list[Any]]:
        """Returns the rows that answer a question about a table. `source` is Trino's name of it."""
        if asked["question"] != "UNNESTED":
            times = {name: f"TIMESTAMP '{asked[name]}'" for name in ("start", "end", "early")}
            return self.query(asked["sql"].format(table=source, **times))
        parts = asked["nested"]
        element, amount = parts["element"], parts["amount"]
        return self.query(
            f"SELECT element, count(*), sum(amount) FROM {source} CROSS JOIN UNNEST(transform({parts['list']}, "
            f"item -> ROW(item.{element}, item.{amount}))) AS listed (element, amount) WHERE element IS NOT NULL "
            "GROUP BY element"
        )

    def query(self, sql: str) -> list[list[Any]]:
        """Returns the rows of a statement."""
        return list(self._connection.cursor().execute(sql).fetchall())
