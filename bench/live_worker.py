"""`prism worker` beside a soak: its process, its death now and then, and the messages about its objects."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any

import boto3
import psutil

from bench.background import BackgroundThread
from bench.traffic import BUCKET
from prism_assets.stages.context import StageContext
from prism_assets.stages.live.holdings import live_tables

_COMMAND = (sys.executable, "-m", "prism_assets.cli", "worker")
_START_SECONDS, _STOP_SECONDS = 300.0, 40.0


class WorkerProcess(BackgroundThread):
    """Runs a worker within a context. Kills it every `kill_seconds`, if any, and starts it again at once."""

    def __init__(self, log: Path, kill_seconds: float) -> None:
        super().__init__()
        self._log, self._kill_seconds = log, kill_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self.kills = 0

    def __enter__(self) -> WorkerProcess:
        self._start()
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_STOP_SECONDS)

    def family(self) -> list[psutil.Process]:
        """Returns the worker and its child."""
        try:
            found = psutil.Process(self._process.pid) if self._process else None
            return [found, *found.children(recursive=True)] if found else []
        except psutil.NoSuchProcess:
            return []

    def _start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(_COMMAND, stdout=log, stderr=log)

    def _run(self) -> None:
        begun = time.monotonic()
        while not self._ended.wait(1.0):
            assert self._process is not None
            is_due = self._kill_seconds and time.monotonic() - begun >= self._kill_seconds
            if is_due:
                self._process.kill()
                self.kills += 1
                begun = time.monotonic()
            if is_due or self._process.poll() is not None:
                self._process.wait()
                self._start()


def until_held(context: StageContext, tables: int) -> None:
    """Waits until the worker has all tables, so that the time of its start is not measured."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        with context.database.begin() as connection:
            if len(live_tables(connection)) == tables:
                return
        time.sleep(1)
    raise TimeoutError(f"the worker does not hold all {tables} tables after {_START_SECONDS:.0f} s")


class Notifier:
    """Sends the message of S3 about a new object."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._client = boto3.client("sqs", endpoint_url=os.environ["PRISM_SQS_ENDPOINT"])

    def tell(self, key: str, size: int) -> None:
        """Names one object of the staging bucket."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        item = {"key": key, "size": size, "sequencer": f"{time.time_ns():016X}"}
        record: dict[str, Any] = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "eventTime": now}
        record["s3"] = {"bucket": {"name": BUCKET}, "object": item}
        self._client.send_message(QueueUrl=self._url, MessageBody=json.dumps({"Records": [record]}))


@contextmanager
def notified() -> Iterator[Notifier]:
    """Makes a queue and puts it into the settings of all processes that start from now on."""
    client = boto3.client("sqs", endpoint_url=os.environ["PRISM_SQS_ENDPOINT"])
    url = client.create_queue(QueueName="soak", Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    os.environ["PRISM_SQS_QUEUE_URLS"] = url
    yield Notifier(url)
