"""Text lines: core-seconds of ALB lines and access logs, against JSON lines of the same fields.

Each form has a warm process of its own. All columns must be equal, value by value, before a time counts.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.conversion import convert_one, local_lake, stored
from bench.kernel import kernel_in_use
from bench.report import Grid, Report, Verdict, median_ratio
from bench.warm import WarmProcess
from prism_assets.domain.streams.format import format_in_file
from prism_assets.domain.streams.text_lines import TextFormat
from prism_assets.domain.tables.file import parse_table_file
from prism_assets.drafting.text_shape import ACCESS_LOG, alb_format
from prism_assets.engine.worker import prepare_worker

_START = datetime(2026, 3, 1, tzinfo=timezone.utc)
_MOST = 1.2
_FLOATS = frozenset({"request_processing_time", "target_processing_time", "response_processing_time"})
_WHOLES = frozenset(
    {"elb_status_code", "target_status_code", "received_bytes", "sent_bytes", "matched_rule_priority", "status"}
)
_TIMES = frozenset({"time", "request_creation_time"})
Fields = dict[str, str]


@dataclass(frozen=True)
class TextSet:
    """Lines of one format, and the same fields as JSON lines."""

    name: str
    form: TextFormat
    fields: Callable[[random.Random], Fields]
    line: Callable[[Fields], str]
    time: str
    """The partition column's entry in a table file."""


def _alb_fields(draw: random.Random) -> Fields:
    at = _START + timedelta(microseconds=draw.randrange(86_400_000_000))
    time = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    host = f"www{draw.randrange(20)}.example.com"
    target = f"10.0.{draw.randrange(4)}.{draw.randrange(250)}:8080"
    values = [
        "https", time, "app/web/50dc6c495c0c9188", f"192.168.{draw.randrange(250)}.{draw.randrange(250)}:2817", target,
        "0.000", f"{draw.random():.3f}", "0.000", "200", draw.choice(["200", "200", "-"]), f"{draw.randrange(4_000)}",
        f"{draw.randrange(100_000)}", f"GET https://{host}:443/p/{draw.randrange(100_000)}?q=a%20b HTTP/2.0",
        "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)", "TLS_AES_128_GCM_SHA256", "TLSv1.3",
        "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/web/73e2d6bc24d8a067",
        f"Root=1-58337262-{draw.getrandbits(96):024x}", host,
        "arn:aws:acm:eu-west-1:123456789012:certificate/12345678-1234-1234-1234-123456789012", "1", time, "forward",
        "-", "-", target, "200", "-", "-", f"TID_{draw.getrandbits(128):032x}",
    ]  # fmt: skip
    return dict(zip(_ALB.columns, values, strict=True))


_IN_QUOTES = frozenset({
    "request", "user_agent", "trace_id", "domain_name", "chosen_cert_arn", "actions_executed", "redirect_url",
    "error_reason", "target_list", "target_status_code_list", "classification", "classification_reason",
})  # fmt: skip


def _alb_line(fields: Fields) -> str:
    return " ".join(f'"{text}"' if name in _IN_QUOTES else text for name, text in fields.items())


def _access_fields(draw: random.Random) -> Fields:
    at = _START + timedelta(seconds=draw.randrange(86_400))
    return {
        "remote_addr": f"192.168.{draw.randrange(250)}.{draw.randrange(250)}",
        "remote_user": "-",
        "time_local": at.strftime("%d/%b/%Y:%H:%M:%S +0000"),
        "request": f"GET /p/{draw.randrange(100_000)} HTTP/1.1",
        "status": draw.choice(["200", "304", "404"]),
        "body_bytes_sent": f"{draw.randrange(100_000)}",
        "http_referer": f"https://www.example.com/search?q={draw.randrange(10_000)}",
        "http_user_agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko)",
    }


def _access_line(fields: Fields) -> str:
    return (
        '{remote_addr} - {remote_user} [{time_local}] "{request}" {status} {body_bytes_sent} "{http_referer}" '
        '"{http_user_agent}"'
    ).format(**fields)


_ALB = alb_format()
_ALB_TIME = "{name: time, type: timestamp}"
_ACCESS_TIME = "{name: time, type: timestamp, value: \"try_strptime(time_local, '%d/%b/%Y:%H:%M:%S %z')\"}"
_SETS = (
    TextSet("ALB", replace(_ALB, nulls=("-",)), _alb_fields, _alb_line, _ALB_TIME),
    TextSet("access log", ACCESS_LOG, _access_fields, _access_line, _ACCESS_TIME),
)


def _column(name: str) -> str:
    if name in _FLOATS:
        return f"{{name: {name}, type: double}}"
    if name in _WHOLES:
        return f"{{name: {name}, type: bigint}}"
    return f"{{name: {name}, type: {'timestamp' if name in _TIMES else 'string'}}}"


def _table_text(kind: TextSet, names: Sequence[str], form: str) -> str:
    columns = [kind.time, *(_column(name) for name in names if name != "time")]
    text = "".join(f"  - {column}\n" for column in columns)
    return (
        f'schema: bench\ntable: text\nstreams: [{{name: bench, url: "s3://staging/{form}/"'
        f"{'' if form == 'json' else f', format: {format_in_file(kind.form)}'}}}]\ncolumns:\n{text}"
    )


def _write(folder: Path, kind: TextSet, objects: int, lines: int) -> list[str]:
    """Writes the objects of both forms. Returns the names of the fields."""
    names: list[str] = []
    for form in ("text", "json"):
        (folder / "staging" / form).mkdir(parents=True)
    for number in range(objects):
        draw = random.Random(number)
        rows = [kind.fields(draw) for _ in range(lines)]
        names = list(rows[0])
        read = [{name: text for name, text in row.items() if text != "-"} for row in rows]
        bodies = {"text": map(kind.line, rows), "json": map(json.dumps, read)}
        for form, body in bodies.items():
            path = folder / "staging" / form / f"{number}.gz"
            path.write_bytes(gzip.compress("\n".join([*body, ""]).encode(), 6, mtime=0))
    return names


def _convert(folder: Path, form: str, table_text: str) -> None:
    pa.set_cpu_count(1)
    table = replace(stored(parse_table_file(table_text, "bench.yaml")), accept_from="object")
    shutil.rmtree(folder / form, ignore_errors=True)
    (folder / form / "lake").mkdir(parents=True)
    (folder / form / "staging").symlink_to(folder / "staging")
    local = local_lake(folder / form)
    for number, path in enumerate(sorted((folder / "staging" / form).iterdir()), 1):
        received = _START + timedelta(days=1)
        result = convert_one(local, table, number, f"{form}/{path.name}", path.stat().st_size, received)
        assert not result.quarantined


def _outcome(folder: Path, form: str) -> tuple[int, str]:
    paths = sorted((folder / form / "lake").rglob("*.parquet"))
    rows = pa.concat_tables(pq.ParquetFile(path).read() for path in paths)
    digest = hashlib.sha256()
    for name in rows.column_names:
        digest.update(repr(rows.column(name).to_pylist()).encode())
    return rows.num_rows, digest.hexdigest()


def _race(folder: Path, kind: TextSet, objects: int, lines: int, rounds: int) -> dict[str, list[float]]:
    """Converts both forms in turn. Returns core-seconds of each round."""
    names = _write(folder, kind, objects, lines)
    used: dict[str, list[float]] = {"text": [], "json": []}
    with ExitStack() as stack:
        processes = {form: stack.enter_context(WarmProcess(prepare_worker)) for form in used}
        for number in range(rounds + 1):
            for form, process in processes.items():
                work = partial(_convert, folder, form, _table_text(kind, names, form))
                spent = process.run(work).core_seconds
                used[form] += [spent] if number else []  # the first one warms up
    text, plain = _outcome(folder, "text"), _outcome(folder, "json")
    if text != plain or text[0] != objects * lines:
        raise ValueError(f"{kind.name}: text gives {text}, and JSON {plain}")
    return used


def main() -> int:
    """Races all sets. Returns exit status 1 if ALB lines take more than 1.2 times the core-seconds of JSON lines."""
    parser = argparse.ArgumentParser(prog="scripts/bench text", description=__doc__)
    parser.add_argument("--objects", type=int, default=8)
    parser.add_argument("--lines", type=int, default=20_000, help="lines of an object")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows, ratios = [], {}
    count = options.objects * options.lines
    for kind in _SETS:
        with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
            used = _race(Path(folder), kind, options.objects, options.lines, options.rounds)
        ratios[kind.name] = median_ratio(used["text"], used["json"])
        costs = [statistics.median(used[form]) / count * 1e6 for form in ("text", "json")]
        rows.append((kind.name, *(f"{cost:.2f}" for cost in costs), f"{ratios[kind.name]:.2f}"))
    return (
        0
        if Report(
            entry="text",
            title="Text lines: conversion, against JSON lines of the same fields",
            verdicts=(Verdict("NP3", "core-seconds of ALB lines : JSON lines", ratios["ALB"], _MOST, at_most=True),),
            grids=(Grid("Conversion", ("lines", "text, µs a line", "JSON, µs a line", "ratio"), tuple(rows)),),
            notes=(f"{count:,} lines in {options.objects} gzip objects of either form. {kernel_in_use()}",),
            figures={name: round(ratio, 2) for name, ratio in ratios.items()},
        ).publish()
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
