"""Faults of a deployment at each entry point: one sentence, and nothing is begun.

The entry points run in this process, as `prism` and Dagster's daemon call them. `prism exporter`, and `prism worker`
before the first apply, stay and look again: `/ready` has their sentence.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import date
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from dagster import DagsterInstance
from dagster._core.errors import DagsterUserCodeProcessError

from prism_assets.defs.location import Location
from prism_assets.kernels.compiled import loaded_kernel
from prism_assets.stages.apply.files import parse_table_files
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.conftest import prism as prism
from prism_assets_tests.command.prism import Prism, environment
from prism_assets_tests.defs.conftest import instance as instance
from prism_assets_tests.defs.server import free_port
from prism_assets_tests.defs.test_sensors import tick
from prism_assets_tests.faulty_servers import answering, serving
from prism_assets_tests.flow.test_life_of_a_partition import _everything
from prism_assets_tests.metadata.worlds import world as world
from prism_assets_tests.tls_front import Authority, tls_front
from prism_assets_tests.world import World

pytestmark = pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated:DeprecationWarning")
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_NOT_YET = ("no look at", "no turn has ended yet")
Fault = Callable[[Prism, pytest.MonkeyPatch], AbstractContextManager[None]]


# Entry points


def apply(prism: Prism, _instance: DagsterInstance) -> str:
    done = prism("table", "apply")
    assert (done.status in (1, 2), done.out) == (True, "")
    return done.err


def worker(prism: Prism, _instance: DagsterInstance) -> str:
    return ended_or_not_ready(prism, "worker")


def exporter(prism: Prism, _instance: DagsterInstance) -> str:
    return ended_or_not_ready(prism, "exporter")


def code_location(prism: Prism, instance: DagsterInstance) -> str:
    """Loading opens no connection, so the first tick meets the fault."""
    folder = prism.world.settings.tables_dir
    location = Location(folder, date(2026, 1, 1), 10, tuple(parse_table_files(folder)[0]))
    with pytest.raises(DagsterUserCodeProcessError) as failed:  # Dagster shows it without a stack trace
        tick(instance, location, "new_objects")
    return f"{failed.value}\n"


def ended_or_not_ready(prism: Prism, command: str) -> str:
    """Runs a command that stays. If it does not end by itself, it ends by SIGTERM once `/ready` has its reason."""
    port, ended, reasons = free_port(), threading.Event(), list[str]()

    def watch() -> None:
        deadline = time.monotonic() + 120
        while not ended.wait(0.05) and not reasons:
            reasons.extend(reason_at(f"http://127.0.0.1:{port}/ready"))
            if time.monotonic() > deadline:
                reasons.append("it neither ended nor gave a reason")
        if not ended.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        done = prism(command, "--listen", f"127.0.0.1:{port}")
    finally:
        ended.set()
        thread.join()
    if reasons:
        assert (done.status, done.err) == (0, "")
        assert done.out.count(reasons[0].strip()) == 1, done.out
        return reasons[0]
    assert (done.status in (1, 2), done.out) == (True, "")
    return done.err


def reason_at(url: str) -> list[str]:
    with suppress(OSError):
        try:
            with _OPENER.open(url, timeout=30):
                return ["ready\n"]
        except urllib.error.HTTPError as error:
            said = error.read().decode()
            return [] if said.startswith(_NOT_YET) else [said]
    return []


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


# Faults


def half_a_configuration(prism: Prism, _patch: pytest.MonkeyPatch) -> AbstractContextManager[None]:
    prism.set(bucket=None)
    return nullcontext()


@contextmanager
def a_role_without_rights(prism: Prism, _patch: pytest.MonkeyPatch) -> Iterator[None]:
    with answering(403, "AccessDenied") as address:
        prism.set(local_root=None, s3_endpoint=address)
        yield


def another_lake(prism: Prism, _patch: pytest.MonkeyPatch) -> AbstractContextManager[None]:
    prism.set(prefix="other/")
    return nullcontext()


@contextmanager
def an_expired_certificate(prism: Prism, _patch: pytest.MonkeyPatch) -> Iterator[None]:
    url = sqlalchemy.make_url(environment(prism.world)["PRISM_DATABASE_URL"])
    authority = Authority.create(prism.world.root, "ours")
    strict = {"sslmode": "verify-full", "sslrootcert": str(authority.file)}
    with tls_front((str(url.host), url.port or 5432), authority.certificate("127.0.0.1", days=-1)) as port:
        front = url.set(host="127.0.0.1", port=port).update_query_dict(strict)
        prism.set(database_url=front.render_as_string(hide_password=False))
        yield


@contextmanager
def no_kernel(prism: Prism, patch: pytest.MonkeyPatch) -> Iterator[None]:
    prism.set(kernel="required")
    patch.setitem(sys.modules, "prism_kernel", None)
    loaded_kernel.cache_clear()
    yield
    loaded_kernel.cache_clear()


def version(number: str) -> Fault:
    @contextmanager
    def fault(prism: Prism, _patch: pytest.MonkeyPatch) -> Iterator[None]:
        set_version(prism.world, number)
        yield
        set_version(prism.world, "0001")

    return fault


def set_version(world: World, number: str) -> None:
    with world.context.database.begin() as connection:
        connection.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{number}'")


ALL = (apply, worker, code_location, exporter)
FAULTS: Mapping[str, tuple[Fault, str, tuple[Callable[[Prism, DagsterInstance], str], ...]]] = {
    "half a configuration": (half_a_configuration, "PRISM_BUCKET: is not set", ALL),
    # The exporter has no rights in S3.
    "a role without rights": (
        a_role_without_rights,
        "s3://lake/prism-installation.json: access denied; check the credentials",
        (apply, worker, code_location),
    ),
    "another lake": (another_lake, "this database belongs to the lake s3://lake/, and the settings name", ALL),
    "an expired certificate": (an_expired_certificate, "its certificate has expired: renew it on the server", ALL),
    "an image without the kernel": (no_kernel, "prism_kernel is not installed, and PRISM_KERNEL is required", ALL),
    # Apply and Dagster migrate an older database.
    "an older database": (version("0000"), "run `prism table apply` first", (worker, exporter)),
    "a newer database": (version("0999"), "have version 999, which this code does not know", ALL),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_one_sentence_and_nothing_begins(
    prism: Prism, instance: DagsterInstance, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    fault, sentence, entries = FAULTS[name]
    prism.world.apply(a_table())
    prism.world.drop(some_rows(3, utc("2026-03-01T12:00")))
    before = _everything(prism.world)
    with fault(prism, monkeypatch):
        before_entries = _everything(prism.world)
        for entry in entries:
            said = entry(prism, instance)
            assert sentence in said, (entry.__name__, said)
            assert said.count("\n") == 1 or name == "half a configuration", (entry.__name__, said)
            assert "Traceback" not in said
            assert _everything(prism.world) == before_entries, entry.__name__
    assert _everything(prism.world) == before


def test_a_role_that_may_read_and_not_write_takes_no_lake(
    prism: Prism, instance: DagsterInstance, tmp_path: Path
) -> None:
    """The next apply, with the right role, takes the lake."""
    (prism.world.settings.tables_dir).mkdir()
    (prism.world.settings.tables_dir / "events.yaml").write_text(a_table())
    with reading_only() as address:
        prism.set(local_root=None, s3_endpoint=address)
        said = apply(prism, instance)
    assert said.count("\n") == 1
    assert "access denied; check the credentials" in said
    assert _everything(prism.world)["prism_tables"] == []
    prism.set(local_root=str(prism.world.settings.local_root), s3_endpoint=None)
    assert prism("table", "apply").status == 0


def reading_only() -> AbstractContextManager[str]:
    """An empty S3 server that refuses to write."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, status: int, code: str) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = f"<Error><Code>{code}</Code><Message>said the server</Message></Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            self._answer(404, "NoSuchKey")

        do_HEAD = do_GET  # noqa: N815 - as the base class has them

        def do_PUT(self) -> None:
            self._answer(403, "AccessDenied")

        def log_message(self, *_: Any) -> None:
            """Prints nothing."""

    return serving(Handler)
