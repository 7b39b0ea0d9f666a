"""The health server of a live worker, asked as a probe and as Prometheus ask it."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from prism_assets.cli.health import HealthServer
from prism_assets.engine.child import ChildEngine
from prism_assets.engine.live import LiveEngines
from prism_assets.metadata.database import Database
from prism_assets.stages.kafka.reading import SpoolFigures
from prism_assets.stages.live.vitals import Vitals
from prism_assets_tests.world import World

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def server(world: World) -> Iterator[HealthServer]:
    """A server over a living PostgreSQL, before the first turn."""
    with served(world, world.context.database) as made:
        yield made


def served(world: World, database: Database) -> HealthServer:
    engines = LiveEngines(ChildEngine(world.context.lake), ChildEngine(world.context.lake))
    return HealthServer(("127.0.0.1", 0), Vitals(), engines, database)


def ask(server: HealthServer, path: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    try:
        with _OPENER.open(f"http://127.0.0.1:{server.port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_worker_is_ready_while_its_turns_end(server: HealthServer) -> None:
    assert ask(server, "/ready") == (503, "no turn has ended yet\n")
    server.vitals.turn_ended()
    assert ask(server, "/ready") == (200, "ready\n")
    server.vitals.last_turn = time.monotonic() - 31
    status, reason = ask(server, "/ready")
    assert status == 503
    assert reason.startswith("the last turn without an error ended ")


def test_a_worker_without_postgresql_is_not_ready(world: World) -> None:
    gone = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    with served(world, gone) as server:
        server.vitals.turn_ended()
        status, reason = ask(server, "/ready")
    assert status == 503
    assert "PostgreSQL" in reason


def test_metrics_have_a_help_and_a_type_for_each_figure(server: HealthServer) -> None:
    server.vitals.turn_ended()
    server.vitals.objects, server.vitals.tables = 3, 2
    server.vitals.spool = SpoolFigures(messages=5, partitions=4)
    status, text = ask(server, "/metrics")
    lines = text.splitlines()
    figures = {line.split()[0]: line.split()[1] for line in lines if not line.startswith("#")}
    assert (status, figures["prism_worker_objects_total"], figures["prism_worker_tables"]) == (200, "3", "2")
    assert (figures["prism_worker_spooled_messages_total"], figures["prism_worker_partitions"]) == ("5", "4")
    assert [line.split()[2] for line in lines if line.startswith("# TYPE")] == list(figures)
    assert [line.split()[2] for line in lines if line.startswith("# HELP")] == list(figures)


def test_another_path_says_which_there_are(server: HealthServer) -> None:
    assert ask(server, "/") == (404, "there are /ready and /metrics\n")
