"""`python -m prism_local.readers.trino_server`: a Trino over the local stack, until Ctrl-C.

The first start fetches 820 MB. Trino needs Java 24 or newer, in TRINO_JAVA_HOME or JAVA_HOME.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from prism_assets.domain.errors import PrismError
from prism_assets.local_stack import local_home
from prism_assets.settings import Settings, load_settings
from prism_local import java
from prism_local.faults import StackError
from prism_local.jars import Jar, ensure_jar
from prism_local.layout import Layout, write_private
from prism_local.ports import LOCAL_OPENER

_SERVER = Jar(
    "io.trino",
    "trino-server",
    "476",
    821_045_832,
    "cfd5accde17e8ebd251eeeb78aed1f490e77bb3a164d95a0f454bf8a7c1cbd3f",
    extension="tar.gz",
)
_PLUGINS = ("hive", "iceberg")
_OLDEST_JAVA = 24
_PORT = 18080
_ADDRESS = f"http://127.0.0.1:{_PORT}"
_JVM = """-server
-Xmx2G
-XX:+UseSerialGC
--enable-native-access=ALL-UNNAMED
--sun-misc-unsafe-memory-access=allow
"""


def why_no_answer() -> str:
    """Returns why readers of Trino cannot ask it, or "" if a server answers at TRINO_URL."""
    address = os.environ.get("TRINO_URL", _ADDRESS)
    try:
        LOCAL_OPENER.open(f"{address}/v1/info", timeout=5).close()
    except OSError:
        return f"no Trino answers at {address}: start one with `python -m prism_local.readers.trino_server`"
    return ""


def ensure_server(home: Path) -> Path:
    """Returns the folder of the server with the connectors of lakes. Fetches and unpacks it first."""
    folder = home.absolute() / "trino" / f"trino-server-{_SERVER.revision}"
    if not folder.is_dir():
        archive = ensure_jar(_SERVER, Layout(home))
        work = folder.with_name("new")
        shutil.rmtree(work, ignore_errors=True)
        with tarfile.open(archive) as content:
            content.extractall(work, filter="data")
        for plugin in (work / folder.name / "plugin").iterdir():
            if plugin.name not in _PLUGINS:
                shutil.rmtree(plugin)
        (work / folder.name).rename(folder)
        work.rmdir()
    return folder


def java_home() -> Path:
    """Returns the home of a Java that is new enough. Raises StackError without one."""
    named = os.environ.get("TRINO_JAVA_HOME") or os.environ.get("JAVA_HOME") or ""
    program = Path(named) / "bin" / "java"
    if named and os.access(program, os.X_OK):
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
        if (java.parse(said.stderr + said.stdout) or 0) >= _OLDEST_JAVA:
            return Path(named)
    raise StackError(f"Trino needs Java {_OLDEST_JAVA} or newer: name its folder with TRINO_JAVA_HOME")


def write_settings(settings: Settings, home: Path) -> Path:
    """Writes the settings of a server on this machine, with keys, for the owner alone. Returns their folder."""
    folder = home.absolute() / "trino" / "etc"
    (folder / "catalog").mkdir(parents=True, exist_ok=True)
    node = {
        "node.environment": "local",
        "node.data-dir": str(folder.parent / "data"),
        "node.internal-address": "127.0.0.1",
        "node.bind-ip": "127.0.0.1",
    }
    server = {
        "coordinator": "true",
        "node-scheduler.include-coordinator": "true",
        "http-server.http.port": str(_PORT),
        "discovery.uri": _ADDRESS,
    }
    write_private(folder / "jvm.config", _JVM)
    for name, values in {"node": node, "config": server, **_catalogs(settings)}.items():
        write_private(folder / f"{name}.properties", java.properties(values))
    return folder


def _catalogs(settings: Settings) -> Mapping[str, Mapping[str, str]]:
    database = urlsplit(settings.database_url.get_secret_value())
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not (key and secret):
        raise StackError("Trino takes the keys of S3 from the environment: set those of the local stack, in .prism/env")
    files = {
        "fs.native-s3.enabled": "true",
        "s3.endpoint": str(settings.s3_endpoint),
        "s3.region": settings.region,
        "s3.path-style-access": "true",
        "s3.aws-access-key": key,
        "s3.aws-secret-key": secret,
    }
    return {
        "catalog/hive": {
            "connector.name": "hive",
            "hive.metastore": "glue",
            "hive.metastore.glue.endpoint-url": str(settings.glue_endpoint),
            "hive.metastore.glue.region": settings.region,
            "hive.metastore.glue.aws-access-key": key,
            "hive.metastore.glue.aws-secret-key": secret,
            **files,
        },
        "catalog/iceberg": {
            "connector.name": "iceberg",
            "iceberg.catalog.type": "jdbc",
            "iceberg.jdbc-catalog.catalog-name": "prism",
            "iceberg.jdbc-catalog.driver-class": "org.postgresql.Driver",
            "iceberg.jdbc-catalog.connection-url": f"jdbc:postgresql://{database.hostname}:{database.port}{database.path}",
            "iceberg.jdbc-catalog.connection-user": unquote(database.username or ""),
            "iceberg.jdbc-catalog.connection-password": unquote(database.password or ""),
            "iceberg.jdbc-catalog.default-warehouse-dir": f"s3://{settings.bucket}/",
            **files,
        },
    }


def main() -> int:
    """Runs the server in the foreground. Returns its exit status, or 2 if it cannot start."""
    try:
        home, settings = local_home(), load_settings()
        if not settings.s3_endpoint:
            raise StackError("Trino reads the local stack only: run `prism local up` first")
        java_folder = java_home()
        launcher = ensure_server(home) / "bin" / "launcher"
        folder = write_settings(settings, home)
    except PrismError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    path = f"{java_folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [str(launcher), "run", "--etc-dir", str(folder)]
    try:
        return subprocess.run(
            command, env={**os.environ, "JAVA_HOME": str(java_folder), "PATH": path}, check=False
        ).returncode
    except KeyboardInterrupt:
        return 0


if __name__ == "__main__":
    sys.exit(main())
