"""Log lines as JSON: one object a line, with the fields of the work."""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from prism_assets.json_logs import JsonLines, json_line, log_fields
from prism_assets.stages.live.worker import LiveOptions, LiveWorker
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.world import World

NOON = "2026-03-01T12:00"


class Lines(io.StringIO):
    """The lines that a handler has written."""

    def read_all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """The lines of prism's loggers, as a worker writes them with PRISM_LOG_FORMAT=json."""
    written, logger = Lines(), logging.getLogger("prism_assets")
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonLines())
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield written
    logger.removeHandler(handler)
    logger.setLevel(before)


def test_a_line_is_one_object_whatever_the_message(lines: Lines) -> None:
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("prism_assets.anything").exception('it says "%s"', "x\ny")
    (line,) = lines.read_all()
    assert (line["level"], line["message"], line["logger"]) == ("error", 'it says "x\ny"', "prism_assets.anything")
    assert line["error"].endswith("ValueError: a\nb")


def test_a_line_is_ascii_whatever_an_object_is_called() -> None:
    """A lone surrogate would end the loop of a worker at the print, and other marks end a line for some readers."""
    message = "s3://b/\udcff\u2028\x9b\x00ü"
    line = json_line("info", message)
    assert line.isascii()
    assert (len(line.splitlines()), json.loads(line)["message"]) == (1, message)


def test_fields_belong_to_their_block_and_thread() -> None:
    with log_fields(table="log.events", day=None), log_fields(batch=7):
        inside = json.loads(json_line("info", "x"))
        others: list[str] = []
        thread = threading.Thread(target=lambda: others.append(json_line("info", "y")))
        thread.start()
        thread.join()
    assert (inside["table"], inside["batch"], "day" in inside) == ("log.events", "7", False)
    assert "table" not in json.loads(others[0])
    assert "table" not in json.loads(json_line("info", "z"))


def test_a_worker_logs_each_table_and_day_of_a_batch(world: World, lines: Lines) -> None:
    world.apply(a_table("log.events"))
    world.drop([*some_rows(4, utc(NOON)), *some_rows(2, utc("2026-02-28T12:00"))])
    world.discover(NOON)
    worker = LiveWorker(world.context, LiveOptions(), clock=lambda: utc(NOON))
    assert worker.turn(threading.Event())
    found = [(line["table"], line["day"], line["batch"], line["message"]) for line in lines.read_all() if "day" in line]
    assert found == [
        ("log.events", "2026-02-28", "1", "2 rows of 1 object committed"),
        ("log.events", "2026-03-01", "1", "4 rows of 1 object committed"),
    ]


def test_a_problem_of_a_table_names_it_in_a_field(world: World) -> None:
    world.apply(a_table("log.events"))
    key = world.drop(some_rows(1, utc(NOON)))
    world.discover(NOON)
    (world.root / "buckets" / "staging" / key).unlink()
    told: list[dict[str, Any]] = []
    object.__setattr__(world.context, "settings", world.settings.model_copy(update={"max_attempts": 1}))
    tell = lambda message: told.append(json.loads(json_line("info", message)))  # noqa: E731
    LiveWorker(world.context, LiveOptions(), clock=lambda: utc(NOON), tell=tell).turn(threading.Event())
    (gave_up,) = [line for line in told if "gave up" in line["message"]]
    assert gave_up["table"] == "log.events"
