"""Dagster as people run it, daemon and web server, as processes of a test, with the requests of a browser."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from prism_local import processes

_PROJECT = Path(__file__).resolve().parents[2]
_SERVICES = ("dagster dev", "dagster_webserver", "dagster._daemon", "dagster code-server")
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_LAUNCH = """
mutation($given: ExecutionParams!) { launchPipelineExecution(executionParams: $given) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }
"""
_BACKFILL = """
mutation($given: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $given) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }
"""
_CANCEL = "mutation($backfill: String!) { cancelPartitionBackfill(backfillId: $backfill) { __typename } }"
_BACKFILL_STATUS = """
query($backfill: String!) { partitionBackfillOrError(backfillId: $backfill) { ... on PartitionBackfill { status } } }
"""
_RELOAD = """
mutation { reloadRepositoryLocation(repositoryLocationName: "prism_assets") { __typename
  ... on WorkspaceLocationEntry { locationOrLoadError { __typename ... on PythonError { message } } } } }
"""
_ASSETS = "{ assetNodes { assetKey { path } } }"
_RUNS = "query($filter: RunsFilter!) { runsOrError(filter: $filter) { ... on Runs { results { runId status } } } }"
_RUN = """
query($run: ID!) { runOrError(runId: $run) { ... on Run {
  status assetMaterializations { partition assetKey { path } } } } }
"""


class DagsterServer:
    """`dagster dev` in a separate folder, with the project's dagster.yaml. Ends together with all its processes.

    `module` may name another of Dagster's servers, such as `dagster_webserver`, which has no daemon. `programs` are
    further code locations.
    """

    def __init__(
        self,
        home: Path,
        environment: Mapping[str, str],
        module: Sequence[str] = ("dagster", "dev"),
        programs: Sequence[Path] = (),
    ) -> None:
        self._port = free_port()
        self._home = home
        self._log = home / "dagster.log"
        for name in ("dagster.yaml", "workspace.yaml"):
            (home / name).write_text((_PROJECT / name).read_text())
        with (home / "workspace.yaml").open("a") as workspace:
            workspace.writelines(f"  - python_file: {path}\n" for path in programs)
        self._environment = {**os.environ, **environment, "DAGSTER_HOME": str(home), "PYTHONPATH": str(_PROJECT)}
        self._module = module
        self._process = self._launch()

    def _launch(self) -> subprocess.Popen[bytes]:
        """Starts the server at the port."""
        return self._spawn(*self._module, "-h", "127.0.0.1", "-p", str(self._port))

    def _spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts a module of Python in the folder, with output to the log."""
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=self._home,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> DagsterServer:
        try:
            self._await(600)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def log(self) -> str:
        """Returns all output so far."""
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Asks for the end, then kills the remaining processes, each by id."""
        family = self.family()
        with suppress(psutil.NoSuchProcess):
            psutil.Process(self._process.pid).send_signal(signal.SIGINT)
        processes.wait(family, 20)
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.wait(120)

    def family(self) -> list[psutil.Process]:
        """Returns all processes: daemon, web server, code server and runs."""
        try:
            process = psutil.Process(self._process.pid)
            return [process, *process.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def services(self) -> dict[str, int]:
        """Returns the process ids of permanent processes, by name; runs and loaded code come and go."""
        commands = {process.pid: command_line(process) for process in self.family()}
        return {name: pid for pid, command in commands.items() for name in _SERVICES if name in command}

    def materialize(self, keys: Sequence[Sequence[str]], day: str) -> str:
        """Launches a run like the button of the UI, and returns its id."""
        selector = {
            "repositoryLocationName": "prism_assets",
            "repositoryName": "__repository__",
            "pipelineName": "__ASSET_JOB",
            "assetSelection": [{"path": list(key)} for key in keys],
        }
        tags = [{"key": "dagster/partition", "value": day}]
        given = {"mode": "default", "selector": selector, "runConfigData": {}, "executionMetadata": {"tags": tags}}
        answer = self.ask(_LAUNCH, {"given": given})["launchPipelineExecution"]
        assert answer["__typename"] == "LaunchRunSuccess", answer
        return str(answer["run"]["runId"])

    def backfill(self, keys: Sequence[Sequence[str]], days: Sequence[str]) -> str:
        """Launches a backfill like the dialogue of the UI, and returns its id."""
        given = {"assetSelection": [{"path": list(key)} for key in keys], "partitionNames": list(days)}
        answer = self.ask(_BACKFILL, {"given": given})["launchPartitionBackfill"]
        assert answer["__typename"] == "LaunchBackfillSuccess", answer
        return str(answer["backfillId"])

    def cancel(self, backfill_id: str) -> None:
        """Cancels a backfill and its runs like the button of the UI."""
        answer = self.ask(_CANCEL, {"backfill": backfill_id})["cancelPartitionBackfill"]
        assert answer["__typename"] == "CancelBackfillSuccess", answer

    def backfill_status(self, backfill_id: str) -> str:
        """Returns the status of a backfill as in the UI, such as COMPLETED_SUCCESS."""
        return str(self.ask(_BACKFILL_STATUS, {"backfill": backfill_id})["partitionBackfillOrError"]["status"])

    def run_states(self, backfill_id: str) -> dict[str, str]:
        """The status of each run of a backfill, by id."""
        tags = {"filter": {"tags": [{"key": "dagster/backfill", "value": backfill_id}]}}
        found = self.ask(_RUNS, tags)["runsOrError"]["results"]
        return {run["runId"]: run["status"] for run in found}

    def reload(self) -> str | None:
        """Reloads the code location like the button of the UI. Returns the error of loading, or None."""
        answer = self.ask(_RELOAD, {})["reloadRepositoryLocation"]
        assert answer["__typename"] == "WorkspaceLocationEntry", answer
        return (answer["locationOrLoadError"] or {}).get("message")

    def reload_after_restart(self, seconds: float) -> None:
        """Reloads the code location until that succeeds: the web server answers with errors while code loads."""
        deadline, error = time.monotonic() + seconds, None
        while time.monotonic() < deadline:
            try:
                if (error := self.reload()) is None:
                    return
            except OSError as refused:
                error = str(refused)
            time.sleep(0.5)
        raise AssertionError(f"the code location did not load: {error}\n{self.log()[-4000:]}")

    def asset_keys(self) -> list[list[str]]:
        """Returns the keys of all assets in the UI."""
        return [list(node["assetKey"]["path"]) for node in self.ask(_ASSETS, {})["assetNodes"]]

    def finished(self, run_id: str, seconds: float) -> dict[str, Any]:
        """Returns the run after its end. Fails the test if the end does not come."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            run: dict[str, Any] = self.ask(_RUN, {"run": run_id})["runOrError"]
            if run["status"] in ("SUCCESS", "FAILURE", "CANCELED"):
                return run
            time.sleep(0.5)
        raise AssertionError(f"run {run_id} did not end:\n{self.log()[-4000:]}")

    def ask(self, query: str, variables: Mapping[str, Any]) -> dict[str, Any]:
        """One GraphQL request."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(self.url("graphql"), body, {"Content-Type": "application/json"})
        with _OPENER.open(request, timeout=300) as answer:
            document: dict[str, Any] = json.load(answer)
        assert "errors" not in document, document
        return dict(document["data"])

    def url(self, path: str) -> str:
        """The address of a page."""
        return f"http://127.0.0.1:{self._port}/{path}"

    def _await(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(OSError), _OPENER.open(self.url("server_info"), timeout=5):
                return
            time.sleep(0.2)
        raise AssertionError(f"Dagster did not start:\n{self.log()[-4000:]}")


def command_line(process: psutil.Process) -> str:
    """Returns the command of a process, empty after its end."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def free_port() -> int:
    """Returns an unused port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
