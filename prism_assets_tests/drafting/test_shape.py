"""Documents of services: the draft names where their records are, and a try of the draft has no problem."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from prism_assets.drafting.draft import draft_file
from prism_assets.drafting.shape import records_of
from prism_assets.drafting.trial import read_table, try_table
from prism_assets.objectstore.config import StoreConfig

NOWHERE = StoreConfig(local_root="/nowhere")
NOW = datetime(2026, 11, 26, 12, tzinfo=timezone.utc)


def events(count: int = 3) -> list[dict[str, Any]]:
    return [{"time": f"2026-11-26T10:00:0{number}Z", "id": number, "note": "}{"} for number in range(count)]


def text_of(*documents: Any, indent: int | None = None, between: str = "") -> bytes:
    return between.join(json.dumps(document, indent=indent) for document in documents).encode()


def cloud_watch(number: int) -> dict[str, Any]:
    happened = [{"id": f"{number}{item}", "timestamp": 1795687222000 + item, "message": "m"} for item in range(2)]
    return {"messageType": "DATA_MESSAGE", "logGroup": "g", "subscriptionFilters": ["all"], "logEvents": happened}


def telemetry(service: str) -> dict[str, Any]:
    records = [{"timeUnixNano": "1795687222123456789", "severityNumber": 9, "attributes": [{"key": "a"}]}] * 2
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": {"name": "app"}, "logRecords": records}]}]}


SHAPES: dict[str, tuple[bytes, str | None, int]] = {
    "lines": (text_of(*events(), between="\n"), None, 3),
    "lines with a list of objects": (text_of(*({**one, "items": events()} for one in events()), between="\n"), None, 3),
    "}{": (text_of(*events()), "$", 3),
    "pretty": (text_of(*events(), indent=2, between="\n"), "$", 3),
    "pretty with CR LF": (text_of(*events(), indent=2, between="\n").replace(b"\n", b"\r\n"), "$", 3),
    "array": (text_of(events()), "$[*]", 3),
    "array over lines": (b"[\n" + text_of(*events(), between=",\n") + b"\n]\n", "$[*]", 3),
    "CloudTrail": (text_of({"Records": events()}), "$.Records[*]", 3),
    "Azure": (text_of({"records": events()}, indent=1), "$.records[*]", 3),
    "wrapped with CR LF": (
        text_of({"v": 1, "Records": events()}, indent=1).replace(b"\n", b"\r\n"),
        "$.Records[*]",
        3,
    ),
    "OTLP": (
        text_of(telemetry("shop"), telemetry("cart"), between="\n"),
        "$.resourceLogs[*].scopeLogs[*].logRecords[*]",
        4,
    ),
    "CloudWatch Logs": (gzip.compress(gzip.compress(text_of(cloud_watch(1), cloud_watch(2)))), "$.logEvents[*]", 4),
    "a key that needs quotes": (text_of({"a.b": events()}), '$["a.b"][*]', 3),
    "a large document": (text_of({"Records": events() * 9_000}), "$.Records[*]", 10_000),
}


@pytest.mark.parametrize(("content", "records", "rows"), SHAPES.values(), ids=SHAPES)
def test_a_draft_names_the_records_and_a_try_of_it_has_no_problem(
    tmp_path: Path, content: bytes, records: str | None, rows: int
) -> None:
    sample = tmp_path / "sample"
    sample.write_bytes(content)
    draft = draft_file(
        NOWHERE, "log.events", str(sample), url="s3://staging/in/", folder=tmp_path / "tables", now=NOW
    )  # fmt: skip
    assert draft.path is not None
    table = read_table(draft.path)
    assert table.streams[0].records == records
    trial = try_table(NOWHERE, table, str(sample), now=NOW)
    assert (trial.rows, dict(trial.quarantined), trial.problem) == (rows, {}, None)


@pytest.mark.parametrize("shape", ["}{", "pretty", "array", "CloudTrail", "Azure", "CloudWatch Logs"])
def test_a_try_as_lines_names_the_format_to_write(tmp_path: Path, shape: str) -> None:
    content, records, _ = SHAPES[shape]
    sample, path = tmp_path / "sample", tmp_path / "events.yaml"
    sample.write_bytes(content)
    path.write_text(
        "schema: log\ntable: events\nstreams: [{name: events, url: 's3://staging/in/'}]\n"
        "columns: [{name: time, type: timestamp}]\n"
    )
    problem = try_table(NOWHERE, read_table(path), str(sample), now=NOW).problem
    assert problem is not None
    assert problem.endswith(f'write `format: {{json: {{records: "{records}"}}}}` below the stream')


def test_most_objects_of_a_sample_decide() -> None:
    lines, document = SHAPES["lines"][0], SHAPES["CloudTrail"][0]
    assert records_of([lambda: iter([lines]), lambda: iter([document]), lambda: iter([document])]) == "$.Records[*]"
    assert records_of([lambda: iter([lines]), lambda: iter([b" \n"])]) is None
