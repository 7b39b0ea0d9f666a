"""One Spark Connect server for all runs, with a token, on loopback."""

import os
import shutil
import sys
import uuid
from pathlib import Path

from prism_assets.engine.allocator import ONE_HEAP
from prism_local import jars, layout
from prism_local.faults import StackError
from prism_local.ports import LOOPBACK
from prism_local.processes import Launch
from prism_local.service import Service

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.stdout.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def cores() -> int:
    """Returns the number of concurrent tasks: PRISM_LOCAL_CORES, or one per core."""
    text = os.environ.get("PRISM_LOCAL_CORES", "").strip()
    if not text:
        return os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        raise StackError(f"PRISM_LOCAL_CORES={text} is not a number of cores; set it to 1 or more")
    return int(text)


class Spark(Service):
    """The engine. Its Python tasks find the local S3's keys in their environment."""

    name = "spark"
    needs_java = True
    start_limit = 120.0

    def prepare(self) -> None:
        """Writes the logging settings: warnings only."""
        super().prepare()
        (self.folder / "conf").mkdir(exist_ok=True)
        # A killed server leaves its shuffle files.
        shutil.rmtree(self.folder / "scratch", ignore_errors=True)
        layout.write_private(self.folder / "conf" / "log4j2.properties", _LOGGING)

    def launch(self, port: int) -> Launch:
        """Returns how to start the server. The token is passed in the environment."""
        home = spark_home()
        options = [word for key, value in self._settings(port).items() for word in ("--conf", f"{key}={value}")]
        command = [str(home / "bin" / "spark-submit"), "--master", f"local[{cores()}]", "--name", self.marker]
        command += ["--driver-memory", os.environ.get("PRISM_LOCAL_SPARK_MEMORY", "2g")]
        found = [str(jars.path(name, self.context.place)) for name in jars.FOR_SPARK]
        command += ["--driver-class-path", os.pathsep.join(found)]
        command += [
            *options,
            "--class",
            "org.apache.spark.sql.connect.service.SparkConnectServer",
            "spark-internal",
        ]
        return Launch(command, self._environment(home), self.folder)

    def _environment(self, home: Path) -> dict[str, str]:
        return self.environment(
            {
                "SPARK_HOME": str(home),
                "SPARK_CONF_DIR": str(self.folder / "conf"),
                "SPARK_LOCAL_IP": LOOPBACK,
                "SPARK_LOCAL_DIRS": str(self.folder / "scratch"),
                "SPARK_CONNECT_AUTHENTICATE_TOKEN": self.context.secrets.spark_token,
                "PYSPARK_PYTHON": sys.executable,
                **ONE_HEAP,  # of Python workers
            }
        )

    def _settings(self, port: int) -> dict[str, str]:
        return {
            "spark.connect.grpc.binding.address": LOOPBACK,
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.python.worker.reuse": "true",
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.warehouse.dir": str(self.context.place.data / "warehouse"),
            # Quoted, because Spark splits the value at spaces and a path may contain some.
            "spark.driver.extraJavaOptions": f'"-Dderby.system.home={self.folder / "derby"}"',
        }

    def is_ready(self, port: int) -> bool:
        """Whether the server answers a call with our token."""
        import grpc

        with grpc.insecure_channel(f"localhost:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
            call = channel.unary_unary("/spark.connect.SparkConnectService/ReleaseSession")
            token = self.context.secrets.spark_token
            try:
                call(_release_of_nothing(), timeout=10, metadata=[("authorization", f"Bearer {token}")])
            except grpc.RpcError as error:
                return self._is_an_answer(error.code().name)
        return True

    def _is_an_answer(self, code: str) -> bool:
        if code == "UNAUTHENTICATED":
            raise StackError("the Spark server refuses our token: run `prism local down`, then `prism local up`")
        # An error is an answer, too; only silence means an absent server.
        return code not in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")


def _release_of_nothing() -> bytes:
    """Encodes a ReleaseSessionRequest for an unknown session: the cheapest call without effect."""
    session = str(uuid.uuid4()).encode()
    return bytes([0x0A, len(session)]) + session  # field 1, session_id


def spark_home() -> Path:
    """Returns the Spark folder inside pyspark."""
    import pyspark

    return Path(pyspark.__file__).parent
