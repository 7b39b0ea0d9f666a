"""The health server of a live worker, asked as a probe and as Prometheus ask it."""

from __future__ import annotations

import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from prism_assets.aws_clients import REQUESTS, Patience, aws_client
from prism_assets.cli.health import HealthServer
from prism_assets.cli.watched_worker import WatchedWorker
from prism_assets.domain.metrics import Sample
from prism_assets.engine.child import ChildEngine
from prism_assets.engine.live import LiveEngines
from prism_assets.metadata.database import Database
from prism_assets.stages.kafka.reading import SpoolFigures
from prism_assets.stages.live.vitals import Vitals
from prism_assets_tests.metrics.scraped import values_of
from prism_assets_tests.world import World

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@pytest.fixture
def vitals() -> Vitals:
    return Vitals()


@pytest.fixture
def server(world: World, vitals: Vitals) -> Iterator[HealthServer]:
    """A server over a living PostgreSQL, before the first turn."""
    with served(world, world.context.database, vitals) as made:
        yield made


def served(world: World, database: Database, vitals: Vitals) -> HealthServer:
    engines = LiveEngines(ChildEngine(world.context.lake), ChildEngine(world.context.lake))
    return HealthServer(("127.0.0.1", 0), WatchedWorker(vitals, engines, database))


def ask(server: HealthServer, path: str) -> tuple[int, str]:
    """The status and the text of an answer."""
    try:
        with _OPENER.open(f"http://127.0.0.1:{server.port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_worker_is_ready_while_its_turns_end(server: HealthServer, vitals: Vitals) -> None:
    assert ask(server, "/ready") == (503, "no turn has ended yet\n")
    vitals.turn_ended()
    assert ask(server, "/ready") == (200, "ready\n")
    vitals.last_turn = time.monotonic() - 31
    status, reason = ask(server, "/ready")
    assert status == 503
    assert reason.startswith("the last turn without an error ended ")


def test_a_worker_without_postgresql_is_not_ready(world: World) -> None:
    gone = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    vitals = Vitals()
    with served(world, gone, vitals) as server:
        vitals.turn_ended()
        status, reason = ask(server, "/ready")
    assert status == 503
    assert "PostgreSQL" in reason


def test_a_worker_lives_while_its_turns_fail_and_not_while_its_loop_hangs(server: HealthServer, vitals: Vitals) -> None:
    vitals.turn_failed()
    assert ask(server, "/live") == (200, "live\n")
    vitals.last_sign = time.monotonic() - 901
    status, reason = ask(server, "/live")
    assert (status, reason.startswith("no turn has ended for 90")) == (503, True)


def test_metrics_are_the_figures_of_the_worker(server: HealthServer, vitals: Vitals) -> None:
    vitals.turn_ended()
    vitals.objects, vitals.tables = 3, 2
    vitals.spool = SpoolFigures(messages=5, partitions=4)
    with vitals.step("convert"):
        pass
    status, text = ask(server, "/metrics")
    values = values_of(text)
    assert (status, values["prism_worker_objects_total"], values["prism_worker_tables"]) == (200, 3, 2)
    assert (values["prism_worker_spooled_messages_total"], values["prism_worker_partitions"]) == (5, 4)
    assert values['prism_worker_steps_total{step="convert"}'] == 1
    assert values['prism_worker_steps_total{step="intake"}'] == 0


def test_calls_to_aws_are_counted_by_service_and_outcome(world: World) -> None:
    before = Counter(REQUESTS.read())
    with pytest.raises(ClientError):
        client(world.settings.glue_endpoint).get_database(Name="there_is_none")
    client(world.settings.glue_endpoint).get_databases()
    with pytest.raises(BotoCoreError):
        client("http://127.0.0.1:1").get_databases()
    more = Counter(REQUESTS.read()) - before
    assert more == {("glue", "refused"): 1, ("glue", "ok"): 1, ("glue", "unanswered"): 1}


def client(endpoint: str | None) -> Any:
    return aws_client("glue", endpoint, "us-east-1", Patience(1, connect_seconds=5.0, read_seconds=5.0))


def test_another_path_says_which_there_are(server: HealthServer) -> None:
    assert ask(server, "/") == (404, "there are /live, /ready and /metrics\n")


def test_a_peer_that_asks_nothing_loses_its_connection(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each open connection holds a thread."""
    assert vars(server._server.RequestHandlerClass)["timeout"]
    monkeypatch.setattr(server._server.RequestHandlerClass, "timeout", 0.1)
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as silent:
        assert silent.recv(1) == b""


def test_a_peer_that_goes_away_prints_nothing(vitals: Vitals, capfd: pytest.CaptureFixture[str]) -> None:
    """A traceback would stand between lines of JSON."""
    asked, gone = threading.Event(), threading.Event()

    class Slow:
        why_not_live = why_not_ready = ""

        def samples(self) -> Iterator[Sample]:
            asked.set()
            gone.wait(60)
            return iter([Sample("prism_worker_turns_total", 1.0)] * 100_000)

    before = set(threading.enumerate())
    with HealthServer(("127.0.0.1", 0), Slow()) as served:
        with socket.create_connection(("127.0.0.1", served.port)) as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            peer.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert asked.wait(60)
        gone.set()
        for thread in set(threading.enumerate()) - before:
            if "process_request" in thread.name:
                thread.join(60)
    assert capfd.readouterr().err == ""
