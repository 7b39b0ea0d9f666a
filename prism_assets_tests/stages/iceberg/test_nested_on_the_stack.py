"""A nested table and its child table on the local stack, read by prism, DuckDB, Spark and PyIceberg."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from prism_assets.known_secrets import secret_values
from prism_assets.platform import build_context
from prism_assets.reading.ducklake import CATALOG, session_lines
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.reading.query import run_query
from prism_assets.settings import Settings
from prism_assets.stages.apply.run import run_apply
from prism_assets.stages.catalog.run import run_catalog
from prism_assets.stages.context import StageContext
from prism_assets.stages.discover.listings import run_discover
from prism_assets.stages.iceberg.run import run_iceberg
from prism_assets.stages.merge.run import run_merge
from prism_assets.stages.stream.run import run_stream
from prism_assets_tests.builders import utc
from prism_assets_tests.ducklake.sessions import new_session as new_session
from prism_local.demo.logs import LogWriter
from prism_local.demo.orders import ITEMS, ORDERS, OrderWriter, read_nested
from prism_local.readers.answers import judged
from prism_local.readers.asking import ask
from prism_local.readers.known import PYICEBERG, SPARK
from prism_local.readers.questions import Question
from prism_local.readers.sessions import DuckDBSession
from prism_local.readers.truth import read_truth

# pyspark leaves sockets open and calls deprecated code.
pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("default")]

TABLES = Path(__file__).parents[3] / "tables" / "log"
KEYS = {ORDERS: "order_id", ITEMS: "item_id"}
NAMES = ["log.pv_log", *(f"log.{name}" for name in KEYS)]
QUESTIONS = (Question.ALL_ROWS, Question.STRUCT_LEAF, Question.LEAF_FILTER, Question.UNNESTED)
PREFIX = "nested_orders"
START = utc("2026-03-01T10:00")


@pytest.fixture
def settings(stack: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, value in stack.items():
        monkeypatch.setenv(name, value)
    return Settings()


@pytest.fixture
def context(settings: Settings, tmp_path: Path) -> Iterator[StageContext]:
    """The platform with two tables of the demo, and log.pv_log, which the lines to paste read first."""
    made = build_context(settings.model_copy(update={"spark_remote": "in-process"}))
    for name in NAMES:
        file = f"{name.removeprefix('log.')}.yaml"
        # Other tests of the stack have a table at the demo's prefix.
        (tmp_path / file).write_text((TABLES / file).read_text().replace("/orders/", f"/{PREFIX}/"))
    made.database.migrate()
    run_apply(made, tmp_path, START)
    yield made
    made.database.dispose()


def publish(context: StageContext, at: str) -> None:
    """Converts, merges what is closed, and publishes."""
    now, names = utc(at), NAMES
    run_discover(context, now=now, names=names)
    assert run_stream(context, now=now, names=names).errors == ()
    run_merge(context, now=now, names=names)
    assert run_catalog(context, now=now, names=names).errors == ()
    assert run_iceberg(context, now=now, names=names, ignore_pace=True).errors == ()


def test_all_readers_see_the_leaf_the_list_and_the_child_rows_that_were_written(
    settings: Settings, context: StageContext, new_session: Callable[[], DuckDBSession]
) -> None:
    """Before and after a merge. Orders of guests have a null struct, and some orders have null or empty lists."""
    writer, views = OrderWriter("run", random.Random(1)), LogWriter("pv_log", random.Random(1))
    for name, body in views.objects(START, START + timedelta(hours=1), 9, 9):
        context.stores.put("prism-staging", f"pv_log/{name}", body)
    for hour in range(2):
        start = START + timedelta(hours=hour)
        for name, body in writer.objects(start, start + timedelta(hours=1), 400, 200):
            context.stores.put("prism-staging", f"{PREFIX}/{name}", body)
        publish(context, f"2026-03-01T{11 + hour}:30")
    assert None in writer.known.by_plan
    for times in (["2026-03-01T13:30"], ["2026-03-02T01:00", "2026-03-02T02:00"]):
        for at in times:
            publish(context, at)
        through_glue = read_nested(lambda sql: run_query(LakeReader(settings), sql).rows, "log", "run")
        assert through_glue == writer.known
        with new_session() as duckdb:
            duckdb.run([line for line in session_lines(settings, with_secrets=True) if not line.startswith("INSTALL")])
            assert read_nested(duckdb.query, f"{CATALOG}.log", "run") == writer.known
        truth = read_truth(settings, KEYS, QUESTIONS)
        for client in (SPARK, PYICEBERG):
            secrets = secret_values()
            replies = ask(client, Path(sys.executable), truth.tables, seconds=180, secrets=secrets, questions=QUESTIONS)
            found = judged(client.name, truth.right, replies, QUESTIONS)
            assert found.is_sound, found
    by_plan = {row[0]: int(row[1] or 0) for row in truth.right[ORDERS, Question.STRUCT_LEAF]}
    assert by_plan == writer.known.by_plan, "what Spark and PyIceberg answered is what was written"
    pieces = {row[0]: int(row[2] or 0) for row in truth.right[ORDERS, Question.UNNESTED]}
    assert pieces == writer.known.unnested
