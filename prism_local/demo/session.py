"""`prism local demo`: a folder with the tables of the demo, the local stack, the play, and Dagster's UI."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import IO, NoReturn

import psutil
from rich.console import Console

from prism_assets.drafting.project import TABLES, project_texts, scaffold
from prism_local import java, ports, processes
from prism_local.faults import StackError
from prism_local.layout import NAME_OF_ROOT_VARIABLE, Layout
from prism_local.stack import LocalStack

_OF_DAGSTER = (".gitignore", "dagster.yaml", "workspace.yaml")
_SCHEMA_OF_CLONE = "# yaml-language-server: $schema=../../docs/table-file.schema.json\n"
_KEPT_VARIABLES = ("PRISM_CACHE", "PRISM_HOME", "PRISM_KERNEL", "PRISM_LOCAL_")
_UI_VARIABLE, _UI_PORT = "PRISM_UI_PORT", "3000"
_LOOKS_EVERY = 0.2
_ENDS_WITHIN = 30.0
"""Seconds for running batches and runs. Another run repeats what a killed one did not commit."""


def demo_tables() -> Mapping[str, str]:
    """Returns the table files of the demo, and their cases, by their paths in a project."""
    folder = files("prism_local").joinpath("demo", TABLES, "log")
    texts = {item.name: item.read_text(encoding="utf-8") for item in folder.iterdir() if item.is_file()}
    return {f"{TABLES}/log/{name}": text.removeprefix(_SCHEMA_OF_CLONE) for name, text in sorted(texts.items())}


class DemoSession:
    """One run of the demo in a folder. Each step is a process with the settings of the folder's stack alone."""

    def __init__(self, folder: Path, out: Console) -> None:
        self._folder, self._out = folder.absolute(), out
        root = os.environ.get(NAME_OF_ROOT_VARIABLE)
        self._stack = LocalStack(Path(root) if root else self._folder / ".prism")

    def run(self, *, once: bool, kafka: bool) -> int:
        """Plays, then runs the UI until it is interrupted. With `once` it stops the servers that it started.

        Returns the exit status: 1 if a row is missing or doubled. Raises StackError before anything begins.
        """
        port = None if once else _free_ui_port()
        java.require()
        self._write_folder()
        with ExitStack() as ends, _ended_by_sigterm():
            if once and not any(server.state == "running" for server in self._stack.status()):
                ends.callback(self._call, "prism_assets.cli", "local", "down")
            status = self._play(kafka)
            return status if status or port is None else self._run_ui(port)

    def _write_folder(self) -> None:
        """Writes missing files. A clone of prism_assets has all of them."""
        tables = demo_tables()
        ours = {self._folder / name for name in tables}
        others = [file for file in sorted((self._folder / TABLES).rglob("*.y*ml")) if file not in ours]
        if others:
            raise StackError(f"{others[0]} is no table of the demo: name another folder; nothing was begun")
        project = project_texts()
        done = scaffold(self._folder, {**{name: project[name] for name in _OF_DAGSTER}, **tables})
        if done.written:
            self._out.print(f"The demo lives in {self._folder}", soft_wrap=True)

    def _play(self, kafka: bool) -> int:
        steps: list[Sequence[str]] = [("prism_assets.cli", "local", "up"), ("prism_local.demo.play",)]
        if kafka:
            steps += [("prism_assets.cli", "local", "up", "--kafka", "--worker"), ("prism_local.demo.topic",)]
        return next((status for step in steps if (status := self._call(*step))), 0)

    def _call(self, module: str, *words: str) -> int:
        process = subprocess.Popen([sys.executable, "-m", module, *words], cwd=self._folder, env=self._environment())
        try:
            return process.wait()
        except BaseException:  # an interrupt, too; the child's own end comes first
            process.terminate()
            process.wait()
            raise

    def _environment(self) -> dict[str, str]:
        """Returns the environment of the steps. A database that the caller's environment names is not played on."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PRISM_", "AWS_")) or name.startswith(_KEPT_VARIABLES)
        }
        kept.pop("PYTHONDONTWRITEBYTECODE", None)  # the demo starts many processes, so Python keeps their bytecode
        home = {NAME_OF_ROOT_VARIABLE: str(self._stack.place.root), "DAGSTER_HOME": str(self._folder)}
        return {**kept, **self._stack.environment(), **home}

    def _run_ui(self, port: int) -> int:
        """Runs Dagster and a worker until one of two signals. The worker makes new objects readable within seconds."""
        self._out.print(
            f"\nThe Dagster UI: http://{ports.LOOPBACK}:{port}   (Ctrl-C ends it; `prism local down` in {self._folder} "
            "stops the servers)",
            soft_wrap=True,
        )
        # Groups of their own, because a terminal sends Ctrl-C to all of a group, and this process ends them in order.
        log = Layout(self._stack.place.root).log("worker")
        worker_words = ["-m", "prism_assets.cli", "worker", "--list-seconds", "2"]
        dagster_words = ["-m", "dagster", "dev", "-h", ports.LOOPBACK, "-p", str(port)]
        with log.open("ab") as file:
            worker = self._spawn(worker_words, file)
        dagster = self._spawn(dagster_words)
        try:
            return self._wait(dagster, worker, log)
        except (KeyboardInterrupt, _Terminated):
            return 0
        finally:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(_end, (worker, dagster)))

    def _spawn(self, words: list[str], output: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *words],
            cwd=self._folder,
            env=self._environment(),
            start_new_session=True,
            stdout=output,
            stderr=output,
        )

    def _wait(self, dagster: subprocess.Popen[bytes], worker: subprocess.Popen[bytes], log: Path) -> int:
        has_worker = True
        while dagster.poll() is None:
            if has_worker and worker.poll() is not None:
                has_worker = False
                self._out.print(f"The worker has ended: see {log}", soft_wrap=True)
            time.sleep(_LOOKS_EVERY)
        return int(dagster.returncode)


class _Terminated(Exception):
    """SIGTERM reached the demo."""


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Turns SIGTERM into an exception, so that children end and servers stop."""

    def end(*_: object) -> NoReturn:
        raise _Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except _Terminated:
        raise SystemExit(128 + signal.SIGTERM) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks the leader of a group to end, and kills what is left of the group.

    Dagster's parent may end first and leave its daemon behind.
    """
    with suppress(psutil.NoSuchProcess):
        processes.stop(psutil.Process(process.pid), signal.SIGTERM, _ENDS_WITHIN)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_ui_port() -> int:
    text = os.environ.get(_UI_VARIABLE) or _UI_PORT
    if not text.isdigit() or not 1 <= int(text) <= 65_535:
        raise StackError(f"{_UI_VARIABLE}={text} is not a port; set it to a number from 1 to 65535")
    if not ports.is_free(int(text)):
        raise StackError(f"port {text} is taken: name another one with {_UI_VARIABLE}; nothing was begun")
    return int(text)
