"""One broker of Apache Kafka, started on request. The broker is its own controller."""

import base64
import os
import socket
import struct
import subprocess
from pathlib import Path

from prism_local import jars, java, kafka_jars, layout, ports
from prism_local.faults import StackError
from prism_local.ports import LOOPBACK
from prism_local.processes import Launch
from prism_local.service import Service

_FORMAT_SECONDS = 120.0
_ASKING_SECONDS = 5.0
_LONGEST_MESSAGE = 20 << 20
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""A request for the versions that a broker speaks: length, key, version, correlation, no client id (KIP-511)."""


class Kafka(Service):
    """The broker. Topics lie below `data/kafka` and survive `down`."""

    name = "kafka"
    on_request = True
    needs_java = True
    start_limit = 120.0
    stop_limit = 30.0

    def launch(self, port: int) -> Launch:
        """Writes the settings, formats the folder of the topics once, and returns how to start the broker."""
        settings = self.folder / "server.properties"
        layout.write_private(settings, self._properties(port, ports.choose("kafka_controller", None, {port})))
        if not (self._topics / "meta.properties").exists():
            self._format(settings)
        return Launch(self._java("kafka.Kafka", str(settings)), self.environment({}), self.folder)

    @property
    def _topics(self) -> Path:
        return self.context.place.data / "kafka"

    def _java(self, *words: str) -> list[str]:
        """Returns a command with the classes of Kafka, and fetches missing jars first."""
        found = os.pathsep.join(map(str, jars.ensure_all(kafka_jars.JARS, self.context.place)))
        options = ["-Xmx512m", "-XX:+UseSerialGC", f"-Dprism.stack={self.marker}"]
        return [java.program(), *options, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", found, *words]

    def _format(self, settings: Path) -> None:
        """Gives the folder of the topics the id of a new cluster. After a death here the next start does it again."""
        words = ("format", "--cluster-id", _new_id(), "--config", str(settings), "--ignore-formatted")
        command = self._java("kafka.tools.StorageTool", *words)
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_FORMAT_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise StackError(f"Kafka prepared no folder within {_FORMAT_SECONDS:.0f} s: try again") from None
        if done.returncode != 0:
            raise StackError(f"Kafka cannot prepare {self._topics}: {(done.stderr or done.stdout).strip()[-500:]}")

    def _properties(self, port: int, controller: int) -> str:
        values = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._topics),
            "num.network.threads": "2",
            "num.io.threads": "2",
            "message.max.bytes": str(_LONGEST_MESSAGE),
            # One broker holds the only copy of everything.
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            # Topics are made on purpose, so that a mistyped name is told.
            "auto.create.topics.enable": "false",
        }
        return java.properties(values)

    def is_ready(self, port: int) -> bool:
        """Whether the broker answers a request of Kafka's protocol without an error."""
        try:
            with socket.create_connection((LOOPBACK, port), _ASKING_SECONDS) as connection:
                connection.settimeout(_ASKING_SECONDS)
                connection.sendall(_API_VERSIONS)
                with connection.makefile("rb") as answer:
                    head = answer.read(10)
        except OSError:
            return False
        return len(head) == 10 and struct.unpack(">iih", head)[1:] == (1, 0)


def _new_id() -> str:
    """Returns an id in Kafka's form: 22 signs for 16 bytes. No id looks like an option."""
    while (made := base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")).startswith("-"):
        pass
    return made
