"""A standalone Spark cluster on loopback: a master, workers of one core each, and a Connect server."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from prism_assets.engine.allocator import ONE_HEAP_OF_EXECUTORS
from prism_assets_tests.engine.waiting import LIMIT_SECONDS, until
from prism_local import ports, processes
from prism_local.processes import Launch
from prism_local.spark import spark_home

_SETTINGS = {
    "spark.driver.bindAddress": ports.LOOPBACK,
    "spark.driver.host": ports.LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.executor.memory": "512m",
    # A job begins when all executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{LIMIT_SECONDS}s",
}


@dataclass
class SparkCluster:
    """Tasks on worker N stop at the failpoints of tasks as long as `hold(N)` is in force."""

    folder: Path
    workers: int = 2
    pinned: bool = False
    """Whether worker N runs on core N alone, with its executor and their threads."""
    master: str = ""
    _master: psutil.Process | None = None
    _workers: dict[int, psutil.Process] = field(default_factory=dict)
    _servers: list[psutil.Process] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        """The settings of a driver on this cluster."""
        return {
            "SPARK_HOME": str(spark_home()),
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_IP": ports.LOOPBACK,
            "PYSPARK_PYTHON": sys.executable,
        }

    def up(self) -> None:
        """Starts the master, and each stopped worker."""
        if self._master is None:
            (self.folder / "conf").mkdir(parents=True)
            settings = {**_SETTINGS, "spark.cores.max": str(self.workers)}
            lines = "".join(f"{key} {value}\n" for key, value in settings.items())
            (self.folder / "conf" / "spark-defaults.conf").write_text(lines)
            port = ports.choose("cluster", None, set())
            self.master = f"spark://{ports.LOOPBACK}:{port}"
            self._master = self._daemon("master", "master.Master", "--port", str(port))
            until(lambda: ports.accepts(port), "the master")
        for worker in range(self.workers):
            if worker not in self._workers or not processes.is_alive(self._workers[worker]):
                self._workers[worker] = self._start_worker(worker)

    def start_connect(self) -> str:
        """Starts a Connect server with tasks on the workers. Returns its address."""
        port = ports.choose("connect", None, set())
        settings = {
            "spark.connect.grpc.binding.address": ports.LOOPBACK,
            "spark.connect.grpc.binding.port": str(port),
            **ONE_HEAP_OF_EXECUTORS,  # as docs/deploy.md advises
        }
        options = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        main = ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self.master, *options, *main]
        self._servers.append(self._spawn("connect", command, {}))
        until(lambda: ports.accepts(port), "the Connect server")
        return f"sc://localhost:{port}"

    @property
    def processes(self) -> dict[str, psutil.Process]:
        """The started processes by name."""
        servers = {f"server {number}": process for number, process in enumerate(self._servers)}
        workers = {f"worker {number}": process for number, process in self._workers.items()}
        return {**({"master": self._master} if self._master else {}), **workers, **servers}

    def down(self) -> None:
        """Ends all started processes, each by its id."""
        self.release()
        for process in reversed(self.processes.values()):
            processes.stop(process, signal.SIGTERM, patience=10)

    def hold(self) -> None:
        """Stops each worker in its next task."""
        for worker in range(self.workers):
            self._reached(worker).unlink(missing_ok=True)
            self._switch(worker).touch()

    def release(self) -> None:
        """Lets tasks go on."""
        for worker in range(self.workers):
            self._switch(worker).unlink(missing_ok=True)

    def await_tasks_on_both(self) -> None:
        """Waits until each worker has a motionless task at the same time: none continues before `release`."""
        until(
            lambda: all(self._reached(worker).exists() for worker in range(self.workers)),
            "a task on each worker at once",
        )

    def kill_executor(self, worker: int) -> None:
        """Kills Java of the executor; the worker starts another one."""
        for process in processes.family(self._workers[worker]):
            with suppress(psutil.NoSuchProcess):
                if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                    process.kill()

    def kill_worker(self, worker: int) -> None:
        """Kills a worker with its executors and their Python at once, like the loss of a host."""
        members = processes.family(self._workers[worker])
        for process in members:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        processes.wait(members, LIMIT_SECONDS)

    def _start_worker(self, worker: int) -> psutil.Process:
        switch = self._switch(worker)
        points = ";".join(f"{name}=pause({switch})" for name in ("stream.after_put", "write.before_put"))
        options = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / f"work-{worker}")]
        return self._daemon(
            f"worker-{worker}",
            "worker.Worker",
            "--port",
            "0",
            *options,
            self.master,
            before=["taskset", "-c", str(worker)] if self.pinned else [],
            PRISM_FAILPOINTS=points,
        )

    def _daemon(
        self, name: str, kind: str, *arguments: str, before: Sequence[str] = (), **environment: str
    ) -> psutil.Process:
        place = ["--host", ports.LOOPBACK, "--webui-port", "0"]
        command = [*before, str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        return self._spawn(name, [*command, *place, *arguments], environment)

    def _spawn(self, name: str, command: list[str], environment: Mapping[str, str]) -> psutil.Process:
        own = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_", "PRISM_"))}
        launch = Launch(command, {**own, **self.environment, **environment}, self.folder)
        return processes.spawn(launch, self.folder / f"{name}.log")

    def _switch(self, worker: int) -> Path:
        return self.folder / f"hold-{worker}"

    def _reached(self, worker: int) -> Path:
        return self.folder / f"hold-{worker}.reached"
