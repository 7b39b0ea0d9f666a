"""The demo's DuckLake client: a DuckDB of its own version, connected throughout in the readers' role."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from prism_assets.domain.errors import WrongUse
from prism_assets.reading.ducklake import CATALOG, session_lines
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import run_query
from prism_assets.settings import Settings
from prism_local.demo.orders import Nested, read_nested
from prism_local.readers.sessions import DuckDBSession, python_of_duckdb

_COUNT = "SELECT count(*) FROM {table}"
_BY_DAY = (
    "SELECT dt, count(*), count(DISTINCT {key}), sum(CAST(left({key}, 12) AS BIGINT)) FROM {table} "
    "GROUP BY dt ORDER BY dt"
)


class LakeClient:
    """Keeps one session for all questions."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session = DuckDBSession(python_of_duckdb())
        for line in session_lines(settings, with_secrets=True):
            if not line.startswith("INSTALL"):
                self._session.query(line)

    def count(self, tables: Mapping[str, str]) -> tuple[int, float]:
        """Returns the current rows of all tables, and the seconds the query took."""
        rows, seconds = 0, 0.0
        for name in tables:
            rows += int(self._session.query(_COUNT.format(table=f"{CATALOG}.log.{name}"))[0][0])
            seconds += self._session.seconds
        return rows, seconds

    def nested(self, run: str) -> Nested:
        """Returns the counts over the orders of a play."""
        return read_nested(self._session.query, f"{CATALOG}.log", run)

    def compare(self, tables: Mapping[str, str]) -> None:
        """Raises WrongUse unless DuckLake and Glue show the same ids on each day."""
        reader = LakeReader(self._settings)
        for name, key in tables.items():
            through_glue = run_query(reader, _BY_DAY.format(key=key, table=f"log.{name}")).rows
            through_lake = self._session.query(_BY_DAY.format(key=key, table=f"{CATALOG}.log.{name}"))
            if [tuple(map(str, row)) for row in through_glue] != [tuple(map(str, row)) for row in through_lake]:
                raise WrongUse(f"log.{name}: Glue shows {list(through_glue)} and DuckLake {through_lake}")

    def close(self) -> None:
        """Ends the session."""
        self._session.close()


def open_lake(settings: Settings, out: Console) -> LakeClient | None:
    """Returns a client, or None after printing why no client is possible."""
    try:
        return LakeClient(settings) if settings.ducklake else None
    except WrongUse as error:
        out.print(f"  DuckLake is not asked: {error}", style="dim", markup=False, soft_wrap=True)
        return None
