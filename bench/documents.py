"""Speed and memory of splitting one document of 1 GB into records, against json.load of a tenth of it."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import chain, repeat
from pathlib import Path

from bench.kernel import kernel_in_use
from bench.report import Grid, Report, Verdict
from bench.warm import WarmProcess
from prism_assets.domain.streams.documents import record_steps
from prism_assets.domain.streams.sources import Outer
from prism_assets.kernels.documents.blocks import DocumentBlock
from prism_assets.kernels.documents.splitter import split_documents

_RECORDS = 7_500
_PIECE = 4 << 20


def _record(number: int) -> str:
    return json.dumps(
        {
            "eventVersion": "1.08",
            "userIdentity": {"type": "AssumedRole", "principalId": f"A{number}", "userName": 'x\\"{['},
            "eventTime": "2026-03-01T00:00:00Z",
            "eventSource": "s3.amazonaws.com",
            "eventName": "GetObject",
            "userAgent": '[aws-cli/2.1 "quoted" \\]',
            "requestParameters": {"bucketName": "b", "key": f"k/{number}"},
            "responseElements": None,
            "resources": [{"type": "AWS::S3::Object", "ARN": "arn"}, {"accountId": "1"}],
        }
    )


def write_document(path: Path, megabytes: int) -> tuple[int, int]:
    """Writes one document. Returns its records and bytes."""
    part = ",".join(map(_record, range(_RECORDS)))
    parts = max(1, megabytes * 1_000_000 // len(part))
    with path.open("w") as file:
        file.writelines(chain(['{"Records":[', part], repeat(f",{part}", parts - 1), ['],"owner":"me"}']))
    return parts * _RECORDS, path.stat().st_size


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _split(path: Path, records: int, outer: tuple[Outer, ...]) -> None:
    parts = split_documents(_pieces(path), record_steps("$.Records[*]"), outer)
    _check(sum(len(part.starts) for part in parts if isinstance(part, DocumentBlock)), records)


def _load(path: Path, records: int) -> None:
    with path.open("rb") as file:
        _check(len(json.load(file)["Records"]), records)


def _check(found: int, records: int) -> None:
    if found != records:
        raise ValueError(f"{found} records instead of {records}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench documents", description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1_000)
    megabytes = parser.parse_args().megabytes
    rows, speeds, peaks = [], {}, {}
    with tempfile.TemporaryDirectory(prefix="prism-bench-") as folder:
        path = Path(folder) / "document.json"
        for name, size, work in (
            ("records", megabytes, partial(_split, outer=())),
            ("records and a key behind them", megabytes, partial(_split, outer=(Outer(("owner",)),))),
            ("json.load", megabytes // 10, _load),
        ):
            records, length = write_document(path, size)
            with WarmProcess() as process:
                used = process.run(partial(work, path, records))
            speeds[name], peaks[name] = length / used.core_seconds / 1e6, used.peak_bytes / 1e6
            rows.append((name, f"{length / 1e6:,.0f}", f"{records:,}", f"{speeds[name]:,.0f}", f"{peaks[name]:,.0f}"))
    return (
        0
        if Report(
            entry="documents",
            title="Documents: one of 1 GB into records",
            verdicts=(
                Verdict("NP2", "records, MB a core-second", speeds["records"], 150, "MB/s"),
                Verdict("NP2", "peak RSS", peaks["records"], 300, "MB", at_most=True),
                Verdict("NP2", "peak RSS with a key behind", peaks["records and a key behind them"], 300, "MB", True),
            ),
            grids=(Grid("One document", ("way", "MB", "records", "MB a core-second", "peak RSS, MB"), tuple(rows)),),
            notes=(f"Each way in a process of its own; the counts of records are compared. {kernel_in_use()}",),
            figures={"MB a core-second": round(speeds["records"]), "peak MB": round(peaks["records"])},
        ).publish()
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
