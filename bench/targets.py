"""The targets of performance, and the entries that measure them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """One target. A required one fails `scripts/bench all` where its figures miss the goal."""

    number: str
    work: str
    peer: str
    goal: str
    is_required: bool = False


@dataclass(frozen=True)
class Entry:
    """One benchmark with the targets that it measures, its options, and its minutes on two quiet cores."""

    name: str
    targets: tuple[str, ...]
    minutes: float
    quick: tuple[str, ...]
    full: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        """Returns what a person types for the full form."""
        return " ".join(["scripts/bench", self.name, *self.full])


TARGETS = (
    Target("P1", "200 gzip objects of 4 MB of JSON to Parquet", "Spark JSON reader", "2 × by seconds"),
    Target(
        "P2",
        "kernel alone: bench, wide, nested",
        "DuckDB, polars",
        "core-s ≤ 1.7, 5.0, 3.3; bench 1.5 × DuckDB, 1.2 × polars; others 1 ×",
        is_required=True,
    ),
    Target("P3", "400 objects of 50 KB over 100 tables", "a Spark job a table", "10 × by seconds", is_required=True),
    Target("P4", "odd lines: 0.1 %, 1 %, 10 %", "clean lines", "≤ 1.15 ×, 1.2 ×, 1.4 ×", is_required=True),
    Target(
        "P5",
        "merge of 2,000 objects of 64 KB",
        "Spark coalesce, Iceberg rewrite; DuckDB",
        "4 × by seconds; 1 × by core-s",
        is_required=True,
    ),
    Target(
        "P6", "a day of merges, 1,440 steps", "extend at every interval", "≤ 2 bytes a byte; 64 to 180 MB; cv ≤ 0.15"
    ),
    Target("P7", "five queries on merged objects", "live objects; files of DuckDB", "3 ×; ≤ 1.1 × the time"),
    Target("P8", "plan of 30 days, 100,000 objects", "S3 listing; PyIceberg", "20 ×; 2 ×"),
    Target(
        "P9",
        "catalog of 300 tables × 400 days",
        "",
        "idle: 1 s, 10 statements; publish: 2 calls + 1 put each",
        is_required=True,
    ),
    Target(
        "P10",
        "freshness, 100 tables × 2 objects a minute",
        "Spark Structured Streaming",
        "p50 ≤ 2 s, p99 ≤ 5 s",
        is_required=True,
    ),
    Target("P11", "metadata of 10 million small objects", "30 thousand", "≤ 10 ms; growth ≤ 1.5 ×"),
    Target("P12", "memory: merge of 128 MiB; JSON of 1 GB", "", "≤ 2 GB; ≤ 1.5 GB", is_required=True),
    Target("P13", "P1 and P5 with two Spark workers", "one worker", "1.8 × by seconds", is_required=True),
    Target("P14", "Dagster with 300 tables", "", "tick ≤ 2 s; no request beside a worker", is_required=True),
    Target("NP1", "three structs and a list", "the same leaves as paths", "≤ 1.3 × by core-s", is_required=True),
    Target("NP2", "one JSON document of 1 GB into records", "", "≥ 150 MB/s; ≤ 300 MB", is_required=True),
    Target("NP3", "core-seconds of ALB lines", "JSON lines of the same fields", "≤ 1.2 ×", is_required=True),
    Target("NP4", "a table that takes 1 of 100 lines", "a table of all lines", "≤ 0.35 × by core-s", is_required=True),
    Target("NP5", "merge of nested rows", "the same leaves as columns", "≥ 0.8 × by MB a core-s", is_required=True),
    Target(
        "LP3",
        "messages of Kafka into spool objects",
        "a consumer that drops them",
        "≥ 120 MB/s a core",
        is_required=True,
    ),
    Target("LP4", "10 topics × 1,000 messages a second", "", "p50 ≤ 2 s, p99 ≤ 5 s", is_required=True),
)
ENTRIES = (
    Entry("kernel", ("P2", "P4"), 2, ("--objects", "2", "--lines", "1000", "--rounds", "1")),
    Entry("day", ("P6",), 0.1, ()),
    Entry("merge_kernel", ("P5", "P12"), 3, ("--objects", "4", "--lines", "500", "--rounds", "1")),
    Entry("queries", ("P7",), 2, ("--objects", "20", "--lines", "500", "--rounds", "1")),
    Entry("plan", ("P8",), 3, ("--objects", "600", "--rounds", "1")),
    Entry("memory", ("P12",), 0.5, ("--megabytes", "20")),
    Entry("documents", ("NP2",), 0.5, ("--megabytes", "20")),
    Entry("text", ("NP3",), 2, ("--objects", "2", "--lines", "500", "--rounds", "1")),
    Entry("routes", ("NP4",), 1, ("--objects", "2", "--lines", "500", "--rounds", "1")),
    Entry(
        "nested",
        ("NP1", "NP5"),
        3,
        ("--objects", "2", "--lines", "500", "--merged", "4", "--rows", "200", "--rounds", "1"),
    ),
    Entry("spool", ("LP3",), 2, ("--messages", "5000", "--rounds", "1")),
    Entry("history", (), 14, ("--objects", "300", "--seconds", "10")),
    Entry("topics", ("LP4",), 5, ("--topics", "2", "--rate", "50", "--minutes", "0.2")),
    Entry("metadata", ("P11",), 3, ("--tables", "20", "--days", "3", "--objects", "2")),
    Entry("many", ("P3",), 7, ("--tables", "3", "--objects", "6", "--rounds", "1")),
    Entry("stream", ("P1",), 6, ("--objects", "4", "--lines", "500", "--rounds", "1", "--warmups", "0")),
    Entry("merge", ("P5",), 15, ("--objects", "4", "--lines", "500", "--rounds", "1", "--warmups", "0")),
    Entry(
        "cluster",
        ("P13",),
        12,
        ("--objects", "4", "--lines", "500", "--merged", "4", "--rows", "200", "--rounds", "1", "--warmups", "0"),
    ),
    Entry(
        "scale",
        ("P9", "P14"),
        4,
        ("--tables", "6", "--schemas", "2", "--days", "5", "--runs", "5", "--shown-days", "3", "--no-browser"),
    ),
    Entry("structured", ("P10",), 9, ("--tables", "4", "--minutes", "0.5", "--drain-seconds", "60")),
    Entry(
        "soak",
        ("P10",),
        37,
        ("--worker", "--tables", "4", "--minutes", "0.5", "--drain-seconds", "60"),
        ("--worker", "--minutes", "30", "--p50", "2", "--p99", "5", "--iceberg", "60", "--iceberg-p99", "90"),
    ),
    Entry(
        "soak_killed",
        (),
        25,
        ("--worker", "--tables", "4", "--minutes", "0.5", "--drain-seconds", "60", "--kill-seconds", "20"),
        ("--worker", "--minutes", "20", "--kill-seconds", "90", "--iceberg", "60"),
    ),
)
"""In the order of `scripts/bench all`: core-seconds first, the longest last."""


def entry_of(target: str) -> tuple[Entry, ...]:
    """Returns the entries that measure a target."""
    return tuple(entry for entry in ENTRIES if target in entry.targets)
