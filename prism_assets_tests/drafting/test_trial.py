"""Trials of a table file: the report on each line of a sample. Nothing is written."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_assets.domain.columns.column import SENSITIVE
from prism_assets.domain.errors import DefinitionError, ExpressionsFailed, MissingSecret, WrongUse
from prism_assets.drafting.trial import Trial, read_table, try_table
from prism_assets.kernels.trial import LIMITS
from prism_assets.objectstore.config import StoreConfig
from prism_assets_tests.builders import a_table, as_lines, utc
from prism_assets_tests.kernels.messages.builders import AMessage, a_spool_object
from prism_assets_tests.world import World

NOW = utc("2026-03-01T12:00")
NOWHERE = StoreConfig(local_root="/nowhere")
CANARY = "canary-4f1c"


def a_file(root: Path, more: str = "", columns: tuple[str, ...] = ("{name: status, type: smallint}",)) -> Path:
    path = root / "events.yaml"
    path.write_text(a_table(columns=columns) + more)
    return path


def lines(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"time": f"2026-03-01T11:00:{n % 60:02}Z", "id": n, "status": 200, **more} for n in range(1, count + 1)]


def tried(path: Path, content: bytes, **options: Any) -> Trial:
    sample = path.parent / "sample.jsonl"
    sample.write_bytes(content)
    return try_table(NOWHERE, read_table(path), str(sample), now=NOW, **options)


def test_rows_days_filtered_lines_and_values_that_do_not_fit_are_told(tmp_path: Path) -> None:
    path = a_file(tmp_path, 'keep: "status < 500"\nreject: [{when: "id = 7", reason: seven}]\n')
    rows = lines(100)
    rows[10]["status"] = 500
    rows[11]["status"] = "many"
    rows[12]["time"] = "2026-02-28T23:00:00Z"
    trial = tried(path, as_lines(rows), rows=2)
    assert (trial.lines, trial.rows, trial.filtered, trial.quarantined) == (100, 97, 2, {"seven": 1})
    assert trial.days == {"2026-02-28": 1, "2026-03-01": 96}
    assert trial.rows_shown[1].line == 2
    assert trial.rows_shown[1].values == {"time": "2026-03-01T11:00:02.000Z", "id": 2, "status": 200}
    (line,) = trial.lines_shown
    assert (line.line, line.reason, line.text) == (7, "seven", json.dumps(rows[6]))
    assert line.object == trial.rows_shown[0].object == str(tmp_path / "sample.jsonl")
    assert trial.problem is None


TOPIC = """\
schema: demo
table: events
streams: [{name: web, topic: app.events, tombstones: reject}]
partition: {column: time, timezone: UTC}
columns:
  - {name: time, type: timestamp, source: "@timestamp"}
  - {name: id, type: bigint}
  - {name: place, type: bigint, source: "@offset"}
  - {name: user, type: string, source: [user, "@key"]}
"""


def test_a_table_of_a_topic_is_tried_on_a_spool_object(tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    path.write_text(TOPIC)
    at = int(NOW.timestamp() * 1000)
    messages = [AMessage(70, b'{"id":1}', b"ann", milliseconds=at), AMessage(71, None, b"bob", milliseconds=at)]
    trial = tried(path, a_spool_object(*messages))
    assert (trial.lines, trial.rows, trial.quarantined) == (2, 1, {"tombstone": 1})
    assert trial.rows_shown[0].values == {"time": "2026-03-01T12:00:00.000Z", "id": 1, "place": 70, "user": "ann"}


def test_a_table_of_a_topic_is_tried_on_lines_as_if_they_were_produced_now(tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    path.write_text(TOPIC)
    trial = tried(path, as_lines([{"id": 1}, {"id": 2, "user": "cy"}]))
    assert [row.values for row in trial.rows_shown] == [
        {"time": "2026-03-01T12:00:00.000Z", "id": 1, "place": 0, "user": None},
        {"time": "2026-03-01T12:00:00.000Z", "id": 2, "place": 1, "user": "cy"},
    ]


def test_a_value_that_lost_something_by_its_length_is_a_warning_with_what_to_do(tmp_path: Path) -> None:
    columns = "[{name: time, type: timestamp}, {name: status, type: string, length: 8}, {name: rest, type: json}]"
    path = tmp_path / "events.yaml"
    path.write_text(a_table().replace(a_table()[a_table().index("columns:") :], f"columns: {columns}\n"))
    long = {"status": "é" * 5, "rest": {"text": "x" * 65_600}}
    short, *others = lines(3)
    trial = tried(path, as_lines([{**short, "status": "ok"}, *({**line, **long} for line in others)]))
    assert trial.rows == 3
    assert trial.warnings == (
        "rest: 2 values are null, longer than 65,535 bytes: this is the greatest length: read parts of it by "
        "paths in columns of their own",
        "status: 2 values were cut, longer than 8 bytes: write a greater `length`, at most 65,535",
    )


def test_a_value_that_does_not_fit_is_counted_by_column(tmp_path: Path) -> None:
    trial = tried(a_file(tmp_path), as_lines([*lines(3), {**lines(1)[0], "status": "many"}]))
    assert [(error.column, error.reason, error.count) for error in trial.value_errors] == [("status", "unfit", 1)]
    assert trial.problem is None


def test_columns_that_are_null_in_every_row_are_named_with_what_their_source_may_have_meant(tmp_path: Path) -> None:
    columns = (
        "{name: status, type: smallint, source: statsu}",
        '{name: place, type: string, source: "@objct"}',
        "{name: zipped, type: boolean}",
        '{name: gone, type: double, value: "id / 0"}',
    )
    trial = tried(a_file(tmp_path, columns=columns), as_lines(lines(3)))
    assert trial.empty_columns == {"status": "status", "place": "@object", "zipped": None, "gone": None}
    nothing = tried(a_file(tmp_path, 'keep: "id > 9"\n', columns=columns), as_lines(lines(3)))
    assert nothing.empty_columns == {}, "where there is no row"


def test_more_lines_in_quarantine_than_the_check_allows_are_a_problem(tmp_path: Path) -> None:
    trial = tried(a_file(tmp_path, "checks: {quarantine_rate: 0.1}\n"), as_lines(lines(9)) + b"broken\n" * 2)
    assert trial.problem == (
        "log.events: 2 of 11 lines are quarantined, and the limit of its checks is 10.00%: 2 bad_json"
    )
    assert tried(a_file(tmp_path, "checks: {quarantine_rate: 0.2}\n"), as_lines(lines(9)) + b"x\n").problem is None


def test_a_filter_that_leaves_no_row_is_a_problem(tmp_path: Path) -> None:
    trial = tried(a_file(tmp_path, "keep: status > 500\n"), as_lines(lines(3)))
    assert trial.problem == "log.events: no line of the sample is a row: `keep` leaves all of them out"


@pytest.mark.parametrize(
    ("content", "reasons"),
    [
        (bytes(range(256)) * 10, {"bad_utf8", "bad_json"}),
        (as_lines([[1, 2], {}]), {"not_object", "missing_time"}),
        (gzip.compress(as_lines(lines(500)), mtime=0)[:-20], {"truncated"}),
    ],
)
def test_a_sample_of_something_else_is_a_problem_with_its_reasons(
    tmp_path: Path, content: bytes, reasons: set[str]
) -> None:
    trial = tried(a_file(tmp_path), content)
    assert trial.rows == 0
    assert set(trial.quarantined) <= reasons
    assert trial.problem is None or "are quarantined" in trial.problem


def test_lines_of_an_array_come_with_the_way_out(tmp_path: Path) -> None:
    problem = tried(a_file(tmp_path), as_lines([lines(3)])).problem
    assert problem is not None
    assert problem.endswith(
        '1 not_object; the objects hold documents: write `format: {json: {records: "$[*]"}}` below the stream'
    )


@pytest.mark.parametrize("content", [b"", b"\n \n", gzip.compress(b"", mtime=0)])
def test_an_empty_sample_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(WrongUse, match="holds no line"):
        tried(a_file(tmp_path), content)


def test_a_sample_without_a_name_is_not_the_folder_that_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lines").write_bytes(as_lines([lines(3)]))
    with pytest.raises(WrongUse, match="--sample is empty"):
        try_table(NOWHERE, read_table(a_file(tmp_path)), "", now=NOW)


def test_a_sample_of_which_nothing_can_be_read_is_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="holds no line: truncated"):
        tried(a_file(tmp_path), b"\x1f\x8b" + b"no gzip")


@pytest.fixture
def sparse(tmp_path: Path) -> Iterator[Path]:
    """A file with one line of 2 GB that takes no space on disk."""
    path = tmp_path / "line"
    with path.open("wb") as file:
        file.truncate(2 << 30)
    yield path
    path.unlink()


def test_of_a_line_without_an_end_only_so_much_is_read(tmp_path: Path, sparse: Path) -> None:
    trial = try_table(NOWHERE, read_table(a_file(tmp_path)), str(sparse), now=NOW)
    assert trial.quarantined == {"line_too_long": 1}


def test_only_the_first_lines_are_read_of_each_file_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "sample"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.gz").write_bytes(gzip.compress(as_lines(lines(100)), mtime=0))
    trial = try_table(NOWHERE, read_table(a_file(tmp_path)), str(folder), now=NOW, lines=40)
    assert (trial.objects, trial.lines, trial.rows) == (4, 40, 40)


def test_objects_in_s3_are_tried_under_their_own_stream_and_time_and_nothing_is_written(world: World) -> None:
    path = a_file(world.root, columns=("{name: stream, type: string, source: '@stream'}",))
    key = world.drop(lines(3))
    before = {item.key: item.etag for item in world.context.stores.list("lake", "")}
    trial = try_table(world.context.stores.config, read_table(path), "s3://staging/events/", now=NOW)
    assert trial.rows_shown[0].object == f"s3://staging/{key}"
    assert trial.rows_shown[0].values["stream"] == "events"
    assert {item.key: item.etag for item in world.context.stores.list("lake", "")} == before


def test_what_is_wrong_with_the_file_is_told_before_any_line_is_read(tmp_path: Path) -> None:
    path = a_file(tmp_path, 'keep: "statsu < 500"\n')
    with pytest.raises(DefinitionError, match="did you mean status"):
        read_table(path)
    with pytest.raises(WrongUse, match="cannot be read"):
        read_table(tmp_path / "nothing.yaml")


@pytest.mark.parametrize(
    "keep",
    [
        "status <",
        "read_text('/etc/passwd') is null",
        "now() > time",
        "length(repeat(repeat('x', 256), status)) > 0",
    ],
)
def test_expressions_that_are_not_allowed_are_told_with_their_place(tmp_path: Path, keep: str) -> None:
    with pytest.raises(DefinitionError, match=r"events\.yaml:\d+: keep: .*"):
        read_table(a_file(tmp_path, f"keep: {json.dumps(keep)}\n"))


def test_an_expression_that_takes_too_long_is_stopped(tmp_path: Path) -> None:
    many = "string_split(repeat('ab,ab,ab,ab,', 250), ',')"
    slow = f"len(flatten(list_transform({many}, lambda x: [x || id, x]))) > 0"
    path = a_file(tmp_path, f"keep: {json.dumps(slow)}\n")
    with pytest.raises(ExpressionsFailed, match="took longer than"):
        tried(path, as_lines(lines(6_000)), limits=replace(LIMITS, expression_seconds=0.05))


def test_an_expression_that_fails_on_one_row_costs_that_value_alone(tmp_path: Path) -> None:
    columns = (
        '{name: code, type: integer, value: "CAST(text AS INTEGER)"}',
        "{name: text, type: string, stored: false}",
    )
    path = a_file(tmp_path, columns=columns)
    rows = lines(1_000, text="7")
    rows[500]["text"] = "x"
    trial = tried(path, as_lines(rows))
    assert (trial.rows, trial.problem) == (1_000, None)
    assert [(error.column, error.reason, error.count) for error in trial.value_errors] == [("code", "value_error", 1)]


def test_a_secret_that_is_not_there_is_told_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRISM_SECRET_MAIL", raising=False)
    path = a_file(tmp_path, columns=("{name: who, type: string, value: \"pseudonym(id, 'mail')\"}",))
    with pytest.raises(MissingSecret, match="PRISM_SECRET_MAIL"):
        tried(path, as_lines(lines(1)))


def test_another_file_is_told_by_lines_and_by_columns(tmp_path: Path) -> None:
    rows = lines(10)
    rows[3]["status"], rows[4]["status"] = 500, 404
    before = replace(read_table(a_file(tmp_path)), version=3)
    columns = (
        '{name: status, type: smallint, value: "code + 1"}',
        "{name: code, type: smallint, source: status, stored: false}",
        '{name: is_error, type: boolean, value: "code >= 400"}',
    )
    path = a_file(tmp_path, "keep: status < 500\n", columns=columns)
    found = tried(path, as_lines(rows), against=before).differences
    assert found is not None
    assert (found.version, found.rows_before, found.both, found.moves) == (3, 10, 9, {"row → filtered": 1})
    assert [(item.column, item.differing) for item in found.columns] == [("status", 9), ("is_error", 9)]
    example = found.columns[0].examples[0]
    assert (example.line, example.before, example.after) == (1, 200, 201)


def with_route(path: Path, route: str) -> Path:
    path.write_text(path.read_text().replace('events/"}', f'events/", route: {route}}}'))
    return path


def test_a_line_moved_to_another_table_is_told_as_that(tmp_path: Path) -> None:
    rows = [{**line, "status": 200 + number % 2} for number, line in enumerate(lines(10))]
    before = read_table(a_file(tmp_path))
    path = with_route(a_file(tmp_path), "{by: status, in: ['200']}")
    found = tried(path, as_lines(rows), against=before)
    assert found.differences is not None
    assert (found.rows, found.elsewhere, found.differences.moves) == (5, 5, {"row → elsewhere": 5})


def test_the_quarantine_rate_is_of_lines_of_the_table(tmp_path: Path) -> None:
    """Lines of other tables would hide that the only line of this one is quarantined."""
    rows = [{**line, "status": 200} for line in lines(99)]
    sample = as_lines([*rows, {"status": 201}])
    tells = tried(with_route(a_file(tmp_path), "{by: status, in: ['201']}"), sample).problem
    assert tells is not None
    assert "1 of 1 line is quarantined" in tells


def test_a_sample_of_lines_of_other_tables_names_the_route(tmp_path: Path) -> None:
    tells = tried(with_route(a_file(tmp_path), "{by: status, in: ['201']}"), as_lines(lines(9))).problem
    assert tells == "log.events: no line of the sample is a row: `route` gives all 9 to other tables"


def test_the_same_file_differs_in_nothing(tmp_path: Path) -> None:
    table = read_table(a_file(tmp_path))
    found = tried(a_file(tmp_path), as_lines(lines(10)) + b"x\n", against=table).differences
    assert found is not None
    assert (found.both, found.moves, found.columns) == (10, {}, ())


SENSITIVE_COLUMNS = (
    "{name: secret, type: string, sensitive: true}",
    "{name: hidden, type: string, sensitive: true, stored: false, source: $.user.name}",
    "{name: length, type: integer, value: \"length(hidden)\"}",
)  # fmt: skip


@pytest.mark.parametrize("hides", ["before", "after", "both"])
def test_no_sensitive_value_reaches_what_is_said(tmp_path: Path, hides: str) -> None:
    """Neither in rows, in quarantined or unparsable lines, nor in differences of two versions."""
    rows = lines(20, secret=CANARY, user={"name": CANARY})
    rows[3]["time"] = None
    content = as_lines(rows) + f'{{"secret": "{CANARY}"\n'.encode() + f'{{"secret": "{CANARY}"}}\n'.encode() * 2
    open_columns = tuple(column.replace(", sensitive: true", "") for column in SENSITIVE_COLUMNS)
    changed = tuple(column.replace("source: $.user.name", "source: $.user.nick") for column in SENSITIVE_COLUMNS)
    old = read_table(a_file(tmp_path, columns=open_columns if hides == "after" else SENSITIVE_COLUMNS))
    path = a_file(tmp_path, columns=open_columns if hides == "before" else changed)
    trial = tried(path, content, against=old)
    if hides == "before":
        assert CANARY in repr(trial.rows_shown), "the test itself: nothing hides it there"
        assert CANARY not in repr(trial.differences)
        return
    assert trial.rows_shown[0].values["secret"] == SENSITIVE
    assert trial.quarantined == {"bad_json": 1, "missing_time": 3}
    assert CANARY not in repr(trial)


def test_a_file_is_tried_as_the_stream_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "requests.yaml"
    path.write_text(
        "schema: log\ntable: requests\nkey: [id]\nstreams:\n"
        '  - {name: front, url: "s3://staging/front/", group: front}\n'
        '  - {name: back, url: "s3://staging/back/", group: back}\n'
        "groups: {front: null, back: null}\n"
        "columns:\n  - {name: id, type: bigint}\n  - {name: time, type: timestamp}\n"
        "  - {name: page, type: string, group: front}\n  - {name: status, type: integer, group: back}\n"
        "window: 1h\nlateness: 1h\n"
    )
    sample = tmp_path / "back.jsonl"
    sample.write_bytes(as_lines([{"id": 1, "time": "2026-03-01T11:00:00Z", "page": "home", "status": 200}]))
    groups = [
        try_table(NOWHERE, read_table(path, stream), str(sample), now=NOW).rows_shown[0].values["_p_group"]
        for stream in (None, "back")
    ]
    assert groups == ["front", "back"]
    with pytest.raises(WrongUse, match="no stream is called side: choose of front, back"):
        read_table(path, "side")
