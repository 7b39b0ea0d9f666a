"""Successful results of every command: for people, as JSON, and repeated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer.main

from prism_assets.cli import app, command_line
from prism_assets.cli.panels import PANELS
from prism_assets.console import size
from prism_assets.domain.days.partitions import PartitionState
from prism_assets_tests.builders import a_table, as_lines, some_rows, utc
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.flow.test_life_of_a_partition import _everything
from prism_assets_tests.notifications import QueueOfTest

DAY = "2026-03-01"
NOON = f"{DAY}T12:00:00Z"
AFTER = "2026-03-02T00:10:00Z"


@pytest.fixture
def full(prism: Prism) -> Prism:
    """A day with rows and a broken line, converted and published."""
    prism.world.settings.tables_dir.mkdir()
    (prism.world.settings.tables_dir / "events.yaml").write_text(a_table())
    prism.ok("table", "apply", "--now", NOON)
    prism.world.drop([], body=as_lines(some_rows(5, utc(f"{DAY}T12:00"))) + b"broken\n")
    prism.ok("run", "--now", NOON)
    return prism


def every_command(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command and every group of commands."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from every_command(command, (*path, name))


ALL_COMMANDS = [*every_command(typer.main.get_command(app)), ("local",), ("local", "up")]


def test_the_version_is_that_of_the_package(prism: Prism) -> None:
    assert prism.ok("--version").out == f"prism {version('prism-assets')}\n"


def test_every_command_explains_itself(prism: Prism) -> None:
    for words in ALL_COMMANDS:
        assert "Usage: prism" in prism.ok(*words, "--help").out


def test_help_is_written_in_whole_sentences() -> None:
    for path, command in commands_of(typer.main.get_command(command_line())):
        assert re.fullmatch(r"[A-Z].*\.", (command.help or "").strip(), re.DOTALL), path
        for option in command.params:
            said = getattr(option, "help", None)
            assert not said or said.startswith("schema.table") or re.fullmatch(r"[A-Z].*\.", said), (path, option.name)


def test_every_command_stands_in_a_panel() -> None:
    group: Any = typer.main.get_command(command_line())
    names = [name for name in group.list_commands(None) if not group.commands[name].hidden]
    places = [PANELS.index(group.commands[name].rich_help_panel) for name in names]
    assert places == sorted(places)
    assert set(places) == set(range(len(PANELS)))


def commands_of(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Returns every command below a group, with its words."""
    for name, command in getattr(group, "commands", {}).items():
        if not command.hidden:
            yield (*path, name), command
            yield from commands_of(command, (*path, name))


def test_the_names_of_all_commands_are_known() -> None:
    """A new command appears here, so somebody writes its tests."""
    assert {" ".join(words) for words in every_command(typer.main.get_command(app)) if words} >= {
        "table", "table apply", "table schema", "table drop", "table flip", "table list", "table show", "table init",
        "table try", "table test",
        "table drift", "discover", "stream", "merge", "catalog", "run", "status", "doctor", "repair", "files", "query",
        "quarantine", "quarantine list", "quarantine show", "rebuild", "quarantine replay",
    }  # fmt: skip


def test_a_table_file_is_drafted_from_logs_that_are_there(prism: Prism) -> None:
    prism.world.drop([], body=b'{"time": "2026-03-01T11:00:00Z", "user": 7}\n')
    draft = ("table", "init", "log.drafted", "--sample", "s3://staging/events/")
    text = prism.ok(*draft, "--print").out
    assert "name: user, type: bigint" in text
    assert prism.ok(*draft, "--json").json["text"] == text
    assert (prism.world.settings.tables_dir / "log" / "drafted.yaml").read_text() == text
    again = prism(*draft)
    assert (again.status, "exists already" in again.err) == (2, True)


def test_a_table_file_is_tried_without_postgresql_and_against_a_stored_version_with_it(prism: Prism) -> None:
    folder = prism.world.settings.tables_dir
    folder.mkdir()
    file, sample = folder / "events.yaml", prism.world.root / "sample.jsonl"
    file.write_text(a_table(columns=["{name: status, type: smallint}"]))
    prism.ok("table", "apply")
    sample.write_text('{"time": "2026-03-01T11:00:00Z", "id": 1, "status": 500}\n')
    file.write_text(a_table(columns=["{name: status, type: smallint, value: '503'}"]))
    words = ("table", "try", str(file), "--sample", str(sample), "--now", NOON)
    said = prism.ok(*words, "--against", "1").out
    assert "against version 1: status: 1 of 1 row" in said
    assert "500 → 503" in said
    assert "no version 7" in prism(*words, "--against", "7").err
    prism.set(database_url=None)
    document = prism.ok(*words, "--json").json
    assert (document["rows"], document["rows_shown"][0]["values"]["status"]) == (1, 503)
    assert prism.ok(*words).out.splitlines()[-1].startswith("log.events: 1 line of 1 object: 1 row, 0 filtered")
    sample.write_text("broken\n")
    broken = prism(*words)
    assert (broken.status, "1 of 1 line is quarantined" in broken.err) == (1, True)
    assert prism(*words[:3], "--sample", "nowhere").status == 2


def test_cases_of_tables_are_proposed_and_held_against_their_files(prism: Prism) -> None:
    folder = prism.world.settings.tables_dir
    folder.mkdir()
    file, cases, sample = folder / "events.yaml", folder / "events.test.jsonl", prism.world.root / "sample.jsonl"
    file.write_text(a_table())
    assert prism.ok("table", "test").out == "no table file has cases: write them to T.test.jsonl beside T.yaml\n"
    sample.write_text('{"time": "2026-03-01T11:00:00Z", "id": 7}\nbroken\n')
    cases.write_text(prism.ok("table", "try", str(file), "--sample", str(sample), "--cases", "1", "--now", NOON).out)
    assert prism.ok("table", "test").out == f"{cases}: 2 cases passed\n"
    cases.write_text(cases.read_text().replace('"id": 7}}', '"id": 8}}'))
    failed = prism("table", "test", str(file))
    assert (failed.status, failed.err) == (1, f"prism: {cases}:1: id: expected 8, got 7\n")
    assert prism("table", "test", "--json").json[0]["cases"] == 2


def test_fields_without_a_column_are_told_and_drafted_as_columns(full: Prism) -> None:
    assert full.ok("table", "drift", "log.events").out == "log.events: every field that is counted has a column\n"
    full.world.drop(some_rows(2, utc(f"{DAY}T12:00"), Name="canary"))
    full.ok("run", "--now", NOON)
    said = full.ok("table", "drift", "log.events").out
    assert said.startswith(
        f"Name: 2 text, from {DAY} 12:00Z to {DAY} 12:00Z\n    s3://staging/events/2026/000002.gz:1\n"
    )
    assert "canary" not in said
    assert full.ok("table", "drift", "log.events", "--json").json["fields"][0]["count"] == 2
    assert full.ok("table", "drift", "log.events", "--patch").out == (
        "# below columns:\n  - {name: name, type: string, source: Name, length: 256}  # 2 of 2 lines, at most 6 bytes\n"
    )


def test_what_apply_would_do_is_a_document_of_changes(prism: Prism) -> None:
    prism.world.settings.tables_dir.mkdir()
    (prism.world.settings.tables_dir / "events.yaml").write_text(a_table())
    document = prism.ok("table", "apply", "--dry-run", "--json").json
    (table,) = document["tables"]
    assert [change["change"] for change in table["changes"]] == ["CreateTable", "AddStream"]
    columns = table["changes"][0]["table"]["columns"]
    assert [(column["name"], column["type"]) for column in columns] == [("time", "timestamp"), ("id", "bigint")]
    assert document["lines"][-1] == "create stream events of log.events at s3://staging/events/"


def test_the_way_of_an_object_in_words(prism: Prism) -> None:
    prism.world.settings.tables_dir.mkdir()
    (prism.world.settings.tables_dir / "events.yaml").write_text(a_table())
    assert "would create table log.events" in prism.ok("table", "apply", "--dry-run").out
    assert "create table log.events with 2 columns" in prism.ok("table", "apply").out
    assert "log.events" in prism.ok("table", "list").out
    assert "bigint" in prism.ok("table", "show", "log.events").out
    assert prism.ok("status", "--now", NOON).out == "log.events: nothing arrived yet\n"
    prism.world.drop(some_rows(3, utc(f"{DAY}T12:00")))
    assert prism.ok("discover", "--now", NOON).out == "1 new of 1 object in 1 stream listed\n"
    assert prism.ok("stream", "--now", NOON).out == "1 object, 3 lines: 3 rows, 0 quarantined\n"
    assert "the next catalog run, to become readable" in prism.ok("status", "--now", NOON).out
    assert f"log.events {DAY}: publish for the first time" in prism.ok("catalog", "--dry-run", "--now", NOON).out
    assert f"log.events {DAY}: published s3://lake/" in prism.ok("catalog", "--now", NOON).out
    assert "3" in prism.ok("query", "SELECT count(*) FROM log.events").out
    assert "1 object" in prism.ok("files", "log.events").out
    assert f"log.events {DAY}: closed" in prism.ok("catalog", "--now", AFTER).out
    assert "write new (0, 1] with 1 object" in prism.ok("merge", "--dry-run", "--now", AFTER).out
    assert prism.ok("merge", "--now", AFTER).out == "1 job: 1 small object into 1, 3 rows\n"
    assert f"log.events {DAY}: switched" in prism.ok("catalog", "--now", AFTER).out
    *_, day, legend = prism.ok("status", "--now", AFTER).out.splitlines()
    assert "switched: 3 rows" in day
    assert [state.value for state in PartitionState if f" {state.value} (" not in legend] == []
    assert "nothing to do" in prism.ok("catalog", "--now", AFTER).out
    assert prism.ok("quarantine", "list").out == "nothing is in quarantine\n"


def test_discover_takes_in_the_queues(prism: Prism, queue: QueueOfTest) -> None:
    prism.world.apply(a_table())
    (prism.world.root / "prism.toml").write_text(
        f'sqs_queue_urls = ["{queue.url}"]\nsqs_endpoint = "{queue.endpoint}"\n'
    )
    told = prism.world.drop(some_rows(1, utc(f"{DAY}T12:00")))
    prism.world.drop(some_rows(1, utc(f"{DAY}T12:00")))
    queue.tell(told, "none/1.gz")
    assert prism.ok("discover", "--now", NOON).out == (
        "2 messages: 1 new, 0 known, 1 unknown, 0 ignored; 1 new of 2 objects in 1 stream listed "
        "(see prism_unknown_staging_objects)\n"
    )
    assert prism.ok("discover", "--now", NOON, "--json").json["received"]["messages"] == 0


def test_the_json_of_every_command_is_one_document(full: Prism) -> None:
    full.world.drop(some_rows(2, utc(f"{DAY}T13:00")))
    for words in (
        ("table", "apply"),
        ("table", "apply", "--dry-run"),
        ("table", "list"),
        ("table", "show", "log.events"),
        ("discover", "--now", NOON),
        ("stream", "--now", NOON),
        ("catalog", "--dry-run", "--now", AFTER),
        ("catalog", "--now", AFTER),
        ("merge", "--dry-run", "--all", "--now", AFTER),
        ("merge", "--now", AFTER),
        ("run", "--until-idle", "--now", AFTER),
        ("repair", "--deep"),
        ("gc", "--dry-run"),
        ("gc",),
        ("status", "--now", AFTER),
        ("files", "log.events"),
        ("query", "SELECT *, 0.5 AS half, DATE '2026-03-01' AS day FROM log.events"),
        ("quarantine", "list"),
    ):
        assert full.ok(*words, "--json").json is not None, words


def test_the_json_of_a_query_is_a_row_an_object(full: Prism) -> None:
    assert full.ok("query", "SELECT count(*) AS rows FROM log.events", "--json").json == [{"rows": 5}]


def test_quarantined_lines_are_shown_as_json_lines(full: Prism) -> None:
    (lot,) = full.ok("quarantine", "list", "--json").json
    assert (lot["reason"], lot["line_count"]) == ("bad_json", 1)
    (line,) = full.ok("quarantine", "show", str(lot["staging_object_id"])).out.splitlines()
    assert "broken" in json.dumps(json.loads(line))


def test_every_command_changes_nothing_the_second_time(full: Prism) -> None:
    full.ok("run", "--until-idle", "--now", AFTER)
    before = _everything(full.world)
    full.ok("table", "apply", "--now", AFTER)
    for words in (("discover",), ("stream",), ("merge",), ("catalog",), ("run",), ("run", "--until-idle")):
        full.ok(*words, "--now", AFTER)
        assert _everything(full.world) == before, words


def test_dry_runs_and_looks_change_nothing(full: Prism) -> None:
    full.world.drop(some_rows(2, utc(f"{DAY}T13:00")))
    full.ok("discover", "--now", NOON)
    full.ok("stream", "--now", NOON)
    before = _everything(full.world)
    for words in (
        ("table", "apply", "--dry-run"),
        ("table", "list"),
        ("table", "show", "log.events"),
        ("merge", "--dry-run", "--all", "--now", AFTER),
        ("catalog", "--dry-run", "--now", AFTER),
        ("repair", "--dry-run", "--deep"),
        ("repair",),
        ("status", "--now", AFTER),
        ("files", "log.events"),
        ("query", "SELECT * FROM log.events"),
        ("quarantine", "list"),
        ("quarantine", "show", "1"),
    ):
        full.ok(*words)
        assert _everything(full.world) == before, words


def test_a_repair_in_words(full: Prism) -> None:
    stores = full.world.context.stores
    (key,) = [item.key for item in stores.list("lake", "") if item.key.endswith(".parquet")]
    before = stores.get("lake", key)
    stores.delete("lake", [key])
    sentence = "1 small object checked: 1 missing, 0 damaged, "
    assert full.ok("repair", "--dry-run").out.endswith(f"{sentence}0 repaired\n")
    assert full.ok("repair", "--date", DAY, "--table", "log.events").out == (
        f"log.events {DAY}: 1 missing, 0 damaged, 1 repaired\n{sentence}1 repaired\n"
    )
    assert stores.get("lake", key) == before
    full.ok("catalog", "--now", AFTER)
    stores.delete("lake", [key])
    assert full.ok("repair").out == (
        f"log.events {DAY}: 1 missing, 0 damaged, 1 repaired, shown by the next catalog run\n{sentence}1 repaired\n"
    )
    (key,) = [item.key for item in stores.list("lake", "") if item.key.endswith(".parquet")]
    stores.delete("lake", [key])
    stores.delete("staging", [item.key for item in stores.list("staging", "")])
    failed = full("repair")
    assert failed.status == 1
    assert f"log.events {DAY}: {key} is missing and cannot be repaired: its staging object" in failed.err


def test_a_clock_without_an_offset_is_utc(full: Prism) -> None:
    assert full.ok("status", "--now", "2026-03-02T00:10:00").out == full.ok("status", "--now", AFTER).out
    assert full.ok("status", "--now", "2026-03-02T09:10:00+09:00").out == full.ok("status", "--now", AFTER).out


def test_words_that_look_like_markup_are_printed_as_they_are(prism: Prism, tmp_path: Path) -> None:
    prism.world.settings.tables_dir.mkdir()
    text = a_table(columns=['{name: odd, type: string, source: "[/x]"}']).replace("team:test", '"team:[/x]"')
    (prism.world.settings.tables_dir / "events.yaml").write_text(text.replace("{name: events,", '{name: "[/x]",'))
    assert "[/x]" in prism.ok("table", "apply").out
    assert "[/x]" in prism.ok("table", "list").out
    assert "[/x]" in prism.ok("table", "show", "log.events").out
    assert "[/x]" in prism.ok("query", "SELECT '[/x]' AS \"[/x]\"").out


def test_a_word_between_colons_is_no_picture(prism: Prism, tmp_path: Path) -> None:
    line = "root:x:0:0:smile:"
    (tmp_path / "events.yaml").write_text(a_table())
    (tmp_path / "sample").write_text(f"{line}\n")
    assert f"{line} " in prism.ok("query", f"SELECT '{line}' AS text").out
    assert f"text  {line}\n" in prism.ok("query", "--vertical", f"SELECT '{line}' AS text").out
    assert f"bad_json {line}\n" in prism("table", "try", "events.yaml", "--sample", "sample").out


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1_023, "1023 B"),
        (1_024, "1.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 42, "4096.0 GiB"),
    ],
)
def test_sizes_are_for_people(count: int, text: str) -> None:
    assert size(count) == text


def test_a_lake_without_its_marker_in_words(full: Prism) -> None:
    full.world.context.stores.delete("lake", ["prism-installation.json"])
    refused = full("run", "--now", AFTER)
    assert (refused.status, refused.out) == (1, "")
    assert "the lake s3://lake/ has no marker s3://lake/prism-installation.json" in refused.err
    assert "run `prism table apply --restore-marker`" in refused.err
    assert full("table", "apply").status == 1
    told = "put back the marker s3://lake/prism-installation.json\n"
    assert full.ok("table", "apply", "--restore-marker", "--dry-run").out == f"would {told}"
    assert full.ok("table", "apply", "--restore-marker").out == told
    full.ok("run", "--now", AFTER)


def test_readers_need_no_marker(full: Prism) -> None:
    """They need no database either, because they see the catalog's content."""
    full.world.context.stores.delete("lake", ["prism-installation.json"])
    assert "5" in full.ok("query", "SELECT count(*) FROM log.events").out
    assert "1 object" in full.ok("files", "log.events").out
