"""Lines of text: the draft has the format of the sample, and a try of the draft has no problem."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest

from prism_assets.domain.streams.format import format_in_file
from prism_assets.domain.streams.stream import Format
from prism_assets.domain.streams.text_lines import CsvFormat, TextFormat
from prism_assets.drafting.draft import draft_file
from prism_assets.drafting.shape import format_of
from prism_assets.drafting.text_shape import ACCESS_LOG
from prism_assets.drafting.trial import read_table, try_table
from prism_assets.objectstore.config import StoreConfig

NOWHERE = StoreConfig(local_root="/nowhere")
NOW = datetime(2026, 11, 26, 23, tzinfo=timezone.utc)
ALB = (
    "https 2026-11-26T10:00:0{0}.186641Z app/lb/50dc6c 192.168.131.39:2817 10.0.0.{0}:80 0.086 0.048 0.037 200 200 0 5 "
    '"GET https://www.example.com:443/a?b={0} HTTP/1.1" "curl/7.46.0 \\"x y\\"" ECDHE-RSA TLSv1.2 arn:aws:x '
    '"Root=1-58337281" "www.example.com" "arn:aws:acm:us-east-2:123456789012" 1 2026-11-26T10:00:00.000000Z '
    '"authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_1234'
)
FLOW_NAMES = (
    "version account-id interface-id srcaddr dstaddr srcport dstport protocol packets bytes start end action log-status"
)
FLOW = "2 012345678901 eni-1235 172.31.16.{0} 172.31.16.21 20641 22 6 20 4249 179568722{0} 179568722{0} ACCEPT OK"
NGINX = '127.0.0.{0} - - [26/Nov/2026:10:55:0{0} -0700] "GET /a HTTP/1.0" 200 {0} "-" "Mozilla \\"x\\""'


def of(template: str, *head: str, end: str = "\n") -> bytes:
    return end.join([*head, *(template.format(number) for number in range(9)), ""]).encode()


SAMPLES: dict[str, tuple[bytes, dict[str, str]]] = {
    "ALB": (
        of(ALB),
        {"time": "timestamp", "status": "", "elb_status_code": "bigint", "request_processing_time": "double"},
    ),
    "VPC": (
        of(FLOW, FLOW_NAMES),
        {"start": "timestamp", "account_id": "string", "bytes": "bigint", "end": "timestamp"},
    ),
    "nginx": (of(NGINX), {"time": "timestamp", "status": "bigint", "request": "string", "remote_addr": "string"}),
    "CLF": (of(NGINX[: NGINX.index(' "-"')]), {"time": "timestamp", "body_bytes_sent": "bigint"}),
    "header": (
        of('{0},2026-11-26 10:00:0{0},"a, ""b""",{0}.5', "number,at,note,amount", end="\r\n"),
        {"at": "timestamp", "number": "bigint", "note": "string", "amount": "double"},
    ),
    "tabs": (of("{0}\t2026-11-26T10:00:0{0}Z\t\tx y"), {"field_2": "timestamp", "field_1": "bigint"}),
    "semicolons": (of("x;2026-11-26T10:00:0{0}Z;1,5"), {"field_2": "timestamp", "field_3": "string"}),
}


@pytest.mark.parametrize(("content", "types"), SAMPLES.values(), ids=SAMPLES)
def test_a_draft_divides_the_lines_and_a_try_of_it_has_no_problem(
    tmp_path: Path, content: bytes, types: dict[str, str]
) -> None:
    sample = tmp_path / "sample"
    sample.write_bytes(content)
    draft = draft_file(
        NOWHERE, "log.events", str(sample), url="s3://staging/in/", folder=tmp_path / "tables", now=NOW
    )  # fmt: skip
    assert draft.path is not None
    table = read_table(draft.path)
    found = {column.name: column.type.name for column in table.columns}
    assert {name: found.get(name, "") for name in types} == types
    trial = try_table(NOWHERE, table, str(sample), now=NOW)
    assert (trial.rows, dict(trial.quarantined), trial.problem) == (9, {}, None)
    assert (trial.value_errors, dict(trial.undefined)) == ((), {})


def a_format(*parts: bytes) -> Format | None:
    return format_of([lambda part=part: iter([part]) for part in parts])  # type: ignore[misc]


def test_the_names_of_columns_stand_in_the_first_line_of_each_object_or_in_none() -> None:
    flow = of(FLOW, FLOW_NAMES)
    assert a_format(flow, flow) == CsvFormat(header=True, delimiter=" ")
    assert a_format(of(FLOW), of(FLOW)) == CsvFormat(
        columns=tuple(f"field_{number}" for number in range(1, 15)), delimiter=" "
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n\n",
        b"just words\nof any\nlength of all\n",
        b'{"a": 1, "b": 2}\n{"a": 1, "b": 2}\n',
        json.dumps([{"time": "2026-11-26T10:00:00Z", "b": 2}] * 9, indent=0).encode(),
        b"\xff\x00\xfe",
    ],
)
def test_other_content_is_no_divided_text(content: bytes) -> None:
    assert not isinstance(a_format(content), CsvFormat)


def test_a_try_as_lines_of_json_names_the_format_to_write(tmp_path: Path) -> None:
    sample, path = tmp_path / "sample", tmp_path / "events.yaml"
    sample.write_bytes(of(NGINX))
    path.write_text(
        "schema: log\ntable: events\nstreams: [{name: events, url: 's3://staging/in/'}]\n"
        "columns: [{name: time, type: timestamp}]\n"
    )
    problem = try_table(NOWHERE, read_table(path), str(sample), now=NOW).problem
    assert problem is not None
    assert problem.endswith(f"hold lines of text: write `format: {format_in_file(ACCESS_LOG)}` below the stream")


def test_every_format_of_text_is_read_as_it_is_written(tmp_path: Path) -> None:
    forms: Sequence[TextFormat] = [
        CsvFormat(header=True, delimiter="\t", quote="'", escape="\\", nulls=("-", "é")),
        CsvFormat(columns=("a", 'b"'), quote=""),
        ACCESS_LOG,
    ]
    for form in forms:
        path = tmp_path / "events.yaml"
        path.write_text(
            "schema: log\ntable: events\n"
            f"streams: [{{name: e, url: 's3://staging/in/', format: {format_in_file(form)}}}]\n"
            "columns: [{name: time, type: timestamp, source: [a, time_local]}]\n"
        )
        assert read_table(path).streams[0].format == form
