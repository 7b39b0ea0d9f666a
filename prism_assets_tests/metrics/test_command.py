"""`prism exporter` as a process: its lines in JSON, its health, its metrics by scrape and by OTLP, and its end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.metrics import Source
from prism_assets.metrics import otlp
from prism_assets_tests.builders import a_table
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.crash.processes import environment
from prism_assets_tests.metrics.scraped import values_of
from prism_assets_tests.world import World

_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Collector:
    """A server that takes OTLP by HTTP, as a collector does."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests.append(ExportMetricsServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Prints nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def values(self) -> dict[str, float]:
        """The last values by name and table."""
        found: dict[str, float] = {}
        for request in list(self.requests):
            for metric in request.resource_metrics[0].scope_metrics[0].metrics:
                points = metric.sum.data_points or metric.gauge.data_points
                for point in points:
                    labels = {item.key: item.value.string_value for item in point.attributes}
                    value = point.as_int if point.HasField("as_int") else point.as_double
                    found[f"{metric.name} {labels.get('table', '')}".rstrip()] = value
        return found


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)


def status_of(url: str) -> int:
    try:
        with _OPENER.open(url, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_exporter_serves_and_pushes_until_it_is_told_to_end(world: World, collector: Collector) -> None:
    world.apply(a_table("log.events"))
    more = {
        "PRISM_LOG_FORMAT": "json",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_METRIC_EXPORT_INTERVAL": "300",
        "NO_PROXY": "127.0.0.1",
    }
    command = [sys.executable, "-m", "prism_assets.cli", "exporter", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(
        command, env=environment(world, **more), cwd=world.root, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = json.loads(process.stdout.readline())
            url = re.findall(r"http://\S+:\d+", line["message"])[0]
            assert (line["level"], line["service"]) == ("info", "exporter")
            until(lambda: status_of(f"{url}/ready") == 200)
            assert status_of(f"{url}/live") == 200
            with _OPENER.open(f"{url}/metrics", timeout=30) as answer:
                values = values_of(answer.read().decode())
            assert values['prism_table_pending_objects{table="log.events"}'] == 0
            until(lambda: "prism_table_pending_objects log.events" in collector.values())
            pushed = collector.values()
            assert pushed["prism_table_rows log.events"] == pushed["prism_table_latency_seconds_count log.events"] == 0
            (resource,) = {item.resource_metrics[0].resource.SerializeToString() for item in collector.requests[:1]}
            assert b"prism-exporter" in resource
            process.send_signal(signal.SIGTERM)
            out, _ = process.communicate(timeout=60)
            assert (process.returncode, json.loads(out)["message"]) == (0, "ended")
        finally:
            process.kill()


def test_wrong_words_are_told_before_anything_is_served(prism: Prism) -> None:
    done = prism("exporter", "--listen", "8091", force=False)
    assert (done.status, "write it like 127.0.0.1:8090" in done.err) == (2, True)


def test_an_error_is_one_object_where_logs_are_json(prism: Prism) -> None:
    prism.set(log_format="json")
    done = prism("exporter", "--listen", "8091", force=False)
    assert json.loads(done.err)["level"] == "error"
    prism.set(log_format="yaml")
    assert "PRISM_LOG_FORMAT" in prism("exporter", force=False).err


def test_otlp_is_off_without_an_endpoint_and_refuses_what_it_cannot_do(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not otlp.is_wanted({})
    assert not otlp.is_wanted({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_SDK_DISABLED": "true"})
    assert otlp.is_wanted({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c"})
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    with pytest.raises(WrongUse, match="grpc is not offered"), otlp.pushed(Source.WORKER, lambda: ()):
        pass
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(WrongUse, match=r"prism-assets\[otel\]"), otlp.pushed(Source.WORKER, lambda: ()):
        pass
