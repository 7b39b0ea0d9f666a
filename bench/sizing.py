"""Cores, requests and money for some amounts of JSON a day, from measured slopes. `docs/sizing.md` shows the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.overview import Result

_DAY = 86_400
_MONTH_DAYS = 30
_LINE_BYTES = 959
"""Of the set wide, the nearest to logs of services."""
_MANY_LINES = 143
_PARQUET_SHARE = 0.15
"""Bytes of Parquet per byte of JSON."""
_MERGED_BYTES = 128 << 20
_MILLION_ROWS_A_MEGABYTE = 0.0205
"""Of merged Parquet, in the benchmark of merges."""
METADATA_BYTES = 1_000
"""Bytes in PostgreSQL of a staging object with its small object and all indexes. A test measures them."""
ARCHIVED_BYTES = 100
"""Bytes in PostgreSQL of a staging object whose rows left for the archive: its key is known. A test measures them."""
_PEAK = 3
"""Cores are bought for this multiple of the mean."""
_EURO = 0.86
"""Euros of a dollar, an assumption."""
_CORE_HOUR = 0.0408
"""m7g.large with two cores costs $0.0816 an hour."""
_GET, _PUT = 0.4e-6, 5e-6
_DATABASES = (
    ("db.m7g.large", 2, 0.168),
    ("db.m7g.xlarge", 4, 0.336),
    ("db.m7g.2xlarge", 8, 0.672),
    ("db.m7g.4xlarge", 16, 1.344),
)
"""Class, cores, dollars an hour in one zone; two zones cost twice as much."""
TERABYTES = (1, 5, 25)
SIZES = {"50 KB": 50e3, "1 MB": 1e6, "16 MB": 16e6}


@dataclass(frozen=True)
class Slopes:
    """Measured prices in core-seconds: a million rows, an object beside its rows, a megabyte of merged Parquet."""

    million_rows: float
    small_object: float
    merged_megabyte: float
    postgres_object: float


_FALLBACK = Slopes(million_rows=5.0, small_object=0.010, merged_megabyte=0.048, postgres_object=0.003)


@dataclass(frozen=True)
class Size:
    """The needs of one amount of JSON a day in objects of one size."""

    terabytes: int
    object_size: str
    objects: float
    cores: float
    postgres_cores: float
    requests: float
    request_dollars: float

    @property
    def bought_cores(self) -> int:
        return max(2, round(self.cores * _PEAK + 0.5))

    @property
    def database(self) -> tuple[str, float]:
        """Returns the smallest class with cores for the peak, and its dollars a month in two zones."""
        fitting = [item for item in _DATABASES if self.postgres_cores * _PEAK <= item[1] / 2]
        name, _, price = fitting[0] if fitting else _DATABASES[-1]
        return name if fitting else f"beyond {name}", price * 2 * 24 * _MONTH_DAYS

    @property
    def dollars(self) -> float:
        """Returns dollars a month without storage."""
        machines = self.bought_cores * _CORE_HOUR * 24 * _MONTH_DAYS
        return machines + self.database[1] + self.request_dollars * _MONTH_DAYS


def slopes(results: Sequence[Result]) -> Slopes:
    """Returns the slopes of the last results."""
    figures = {result.entry: result.figures for result in results}
    rows = figures.get("kernel", {}).get("prism, wide: core-s per million rows", _FALLBACK.million_rows)
    many = figures.get("many", {})
    bench = figures.get("kernel", {}).get("prism, bench: core-s per million rows", 0.0)
    whole = many.get("prism, live worker: core-s per million rows", 0.0) * _MANY_LINES / 1e6
    merged = figures.get("merge_kernel", {}).get("prism, one range: core-s per million rows", 0.0)
    return Slopes(
        million_rows=rows,
        small_object=max(0.0, whole - bench * _MANY_LINES / 1e6) or _FALLBACK.small_object,
        merged_megabyte=merged * _MILLION_ROWS_A_MEGABYTE or _FALLBACK.merged_megabyte,
        postgres_object=many.get("PostgreSQL: core-s per object", _FALLBACK.postgres_object),
    )


def size(of: Slopes, terabytes: int, name: str) -> Size:
    """Returns the needs of a day."""
    total = terabytes * 1e12
    objects = total / SIZES[name]
    parquet = total * _PARQUET_SHARE
    core_seconds = total / _LINE_BYTES / 1e6 * of.million_rows + objects * of.small_object
    core_seconds += parquet / 1e6 * of.merged_megabyte
    # Stream reads an object and writes one for its day; Merge reads that one and writes few.
    gets, puts = 2 * objects, objects + parquet / _MERGED_BYTES + objects / 1_000
    return Size(
        terabytes,
        name,
        objects,
        core_seconds / _DAY,
        objects * of.postgres_object / _DAY,
        gets + puts,
        gets * _GET + puts * _PUT,
    )


def sizing_table(results: Sequence[Result]) -> str:
    """Returns the table of machines and money."""
    lines = [
        "| JSON a day | objects of | objects/s | cores, mean | cores to buy | PostgreSQL | S3 requests | € a month |",
        "|---|---|---|---|---|---|---|---|",
    ]
    of = slopes(results)
    for terabytes in TERABYTES:
        for name in SIZES:
            one = size(of, terabytes, name)
            lines.append(
                f"| {terabytes} TB | {name} | {one.objects / _DAY:,.1f} | {one.cores:.1f} | {one.bought_cores} "
                f"| {one.database[0]} | {one.requests / 1e6:,.1f} M | {_round(one.dollars * _EURO):,} |"
            )
    return "\n".join(lines) + "\n"


def slopes_table(results: Sequence[Result]) -> str:
    """Returns the table of slopes."""
    of = slopes(results)
    rows: Mapping[str, str] = {
        "a million rows of 959 bytes, 25 columns": f"{of.million_rows:.1f} core-s",
        "a staging object, beside its rows": f"{of.small_object * 1000:.0f} core-ms{_guess(results, 'many')}",
        "of it in PostgreSQL": f"{of.postgres_object * 1000:.0f} core-ms{_guess(results, 'many')}",
        "of it in PostgreSQL, until it is archived": f"{METADATA_BYTES / 1000:.1f} kB",
        "a gigabyte of merged Parquet": f"{of.merged_megabyte * 1000:.0f} core-s",
        "Parquet for a gigabyte of JSON": f"{_PARQUET_SHARE * 1000:.0f} MB",
        "S3 requests of an object": "2 GET, 1 PUT",
        "S3 requests of a listing": "1 for each 1,000 keys",
    }
    return (
        "\n".join(["| work | price |", "|---|---|", *(f"| {name} | {price} |" for name, price in rows.items())]) + "\n"
    )


def _guess(results: Sequence[Result], entry: str) -> str:
    return "" if any(result.entry == entry for result in results) else ", an estimate: not measured yet"


def _round(value: float) -> int:
    """Rounds to two digits, because the prices deserve no more."""
    return int(round(value, 2 - len(str(int(value)))))
