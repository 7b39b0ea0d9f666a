"""The readers to ask, their packages, and the readers that cannot be asked here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from prism_local.readers import trino_server

CLIENTS = Path(__file__).parent / "clients"
HARNESS = CLIENTS / "harness.py"


@dataclass(frozen=True)
class Reader:
    """A reader, its program, and the packages of its environment. Without packages, it runs in the project's
    environment.
    """

    name: str
    program: str
    packages: tuple[str, ...] = ()
    why_not: Callable[[], str] | None = None
    """Tells why the server that it asks is missing, or returns "". None if it asks no server of its own."""

    @property
    def path(self) -> Path:
        """The file with the lines to paste and the code for the harness."""
        return CLIENTS / f"{self.program}.py"


_PYICEBERG = ("pyiceberg[pyarrow,sql-postgres]==0.12.0", "psycopg[binary]>=3.2")

_TRINO = ("trino==0.340.0",)

PRISM = Reader("prism query --iceberg", "with_prism")
PYICEBERG = Reader("PyIceberg", "with_pyiceberg")
SPARK = Reader("Spark", "with_spark")
_EXTENSIONS = ("avro", "httpfs", "iceberg")

_LAKE_EXTENSIONS = ("ducklake", "httpfs", "postgres-scanner")

DUCKLAKE = Reader(
    "DuckDB with DuckLake",
    "with_ducklake",
    ("duckdb==1.5.5", *(f"duckdb-extension-{name}==1.5.5" for name in _LAKE_EXTENSIONS), "pytz"),
)

READERS = (
    PRISM,
    PYICEBERG,
    SPARK,
    Reader("DuckDB", "with_duckdb", ("duckdb==1.5.5", *(f"duckdb-extension-{name}==1.5.5" for name in _EXTENSIONS))),
    DUCKLAKE,
    Reader("polars", "with_polars", ("polars==2.1.0", *_PYICEBERG)),
    Reader("ClickHouse", "with_clickhouse", ("chdb==4.4.0",)),
    Reader("daft", "with_daft", ("daft==0.7.26", *_PYICEBERG)),
    Reader("Trino", "with_trino", _TRINO, trino_server.why_no_answer),
    Reader("Trino by symlinks", "with_trino_symlinks", _TRINO, trino_server.why_no_answer),
)

ABSENT: Mapping[str, str] = {
    "Athena": "a service of AWS",
    "Redshift Spectrum": "a service of AWS",
    "Snowflake": "a service of its own",
}
"""Readers that cannot be asked here, with the reason."""
