"""The chart of README: seconds until rows are readable, and core-seconds of conversions and merges, beside peers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.bars import Bar, Palette, Panel, panels
from bench.overview import Result

_TITLE = "Log lines to readable rows: seconds and core-seconds"
_PANELS: tuple[tuple[str, str, Mapping[str, str]], ...] = (
    (
        "Seconds until 400 new objects of 100 tables are readable",
        "many",
        {
            "prism, live worker: s": "prism_assets, live worker",
            "Spark, a job a table: s": "Spark, a job a table",
            "Spark, two jobs at once: s": "Spark, two jobs at once",
        },
    ),
    (
        "Core-seconds per million rows: JSON lines to sorted Parquet",
        "kernel",
        {
            "prism, bench: core-s per million rows": "prism_assets, every line checked",
            "DuckDB, bench: core-s per million rows": "DuckDB",
            "polars, bench: core-s per million rows": "polars",
        },
    ),
    (
        "Core-seconds per million rows: nested JSON lines to Parquet",
        "kernel",
        {
            "prism, nested: core-s per million rows": "prism_assets, every line checked",
            "DuckDB, nested: core-s per million rows": "DuckDB",
            "polars, nested: core-s per million rows": "polars",
        },
    ),
    (
        "Core-seconds per million rows: JSON lines to Parquet through S3",
        "stream",
        {
            "prism stream: core-s per million rows": "prism_assets, committed",
            "Spark JSON reader: core-s per million rows": "Spark JSON reader",
        },
    ),
    (
        "Core-seconds per million rows: 2,000 small objects into one, on the local disk",
        "merge_kernel",
        {
            "prism, one range: core-s per million rows": "prism_assets, rows proved",
            "DuckDB, threads = 1, one range: core-s per million rows": "DuckDB",
        },
    ),
    (
        "Seconds: 2,000 small objects into one, through S3",
        "merge",
        {
            "one range, prism merge: s": "prism_assets, committed",
            "one range, Spark coalesce(1): s": "Spark coalesce(1), not sorted",
            "one range, Iceberg rewrite_data_files: s": "Iceberg rewrite_data_files",
        },
    ),
)


def chart(results: Sequence[Result], palette: Palette) -> str:
    """Returns the picture. A panel without a result, or with a bar missing, is left out."""
    by_entry = {result.entry: result.figures for result in results}
    found = []
    for heading, entry, names in _PANELS:
        figures = by_entry.get(entry, {})
        if names.keys() <= figures.keys():
            bars = tuple(Bar(shown, figures[name], shown.startswith("prism_assets")) for name, shown in names.items())
            found.append(Panel(heading, bars))
    return panels(_TITLE, found, palette)
