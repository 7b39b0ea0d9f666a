"""Trino with its connector for Iceberg, and the catalog in PostgreSQL."""

# lines
import os

from trino.dbapi import connect

address = os.environ.get("TRINO_URL", "http://127.0.0.1:18080")
connection = connect(address, user="reader", catalog="iceberg", schema="log_iceberg", timezone="UTC")
for row in connection.cursor().execute("SELECT dt, count(*) FROM pv_log WHERE status = 404 GROUP BY dt"):
    print(row)
# end

from typing import Any

from trino_answers import Answers  # of this folder, where the harness starts

_answers = Answers(connection)
version = _answers.version


def answer(asked: dict[str, Any]) -> list[list[Any]]:
    at = "" if asked["snapshot_id"] is None else f" FOR VERSION AS OF {asked['snapshot_id']}"
    found: list[list[Any]] = _answers.answer(asked, f"iceberg.{asked['identifier']}{at}")
    return found
