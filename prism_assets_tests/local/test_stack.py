"""The life of a stack: up, down, killed, moved, asked twice; with PostgreSQL for all, as it is quick."""

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest

from prism_assets.domain.errors import TerminalError, WrongUse
from prism_local import ports, processes
from prism_local.reports import ServiceStatus
from prism_local.stack import LocalStack

DATABASE = ("postgres",)


def url(stack: LocalStack, database: str = "prism") -> str:
    address = stack.environment()["PRISM_DATABASE_URL"].replace("+psycopg", "")
    return address.rpartition("/")[0] + "/" + database


def execute(stack: LocalStack, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url(stack), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def status_of(stack: LocalStack, name: str) -> ServiceStatus:
    return next(status for status in stack.status() if status.name == name)


def pid_of(stack: LocalStack, name: str = "postgres") -> int:
    pid = status_of(stack, name).pid
    assert pid is not None
    return pid


def kill(pid: int) -> None:
    process = psutil.Process(pid)
    process.kill()
    process.wait(10)


def occupy(port: int) -> socket.socket:
    listener = socket.create_server((ports.LOOPBACK, port))
    listener.listen()
    return listener


def test_data_survives_down_and_up(stack: LocalStack) -> None:
    stack.up(services=DATABASE)
    settings = stack.environment()
    execute(stack, "CREATE TABLE kept AS SELECT 7 AS n")
    assert stack.down().stopped == DATABASE
    assert stack.up(services=DATABASE).started == DATABASE
    assert execute(stack, "SELECT n FROM kept") == [(7,)]
    assert stack.environment() == settings


def test_both_databases_exist_and_need_the_password(stack: LocalStack) -> None:
    stack.up(services=DATABASE)
    psycopg.connect(url(stack, "dagster")).close()
    password = stack.environment()["PRISM_DAGSTER_PG_PASSWORD"]
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url(stack).replace(password, "wrong"))


def test_up_twice_changes_nothing(stack: LocalStack) -> None:
    stack.up(services=DATABASE)
    before = pid_of(stack), stack.environment(), stack.place.env.stat().st_mtime_ns
    report = stack.up(services=DATABASE)
    assert report.started == ()
    assert report.seconds < 2
    assert (pid_of(stack), stack.environment(), stack.place.env.stat().st_mtime_ns) == before


def test_two_ups_at_once_start_one_server(stack: LocalStack) -> None:
    with ThreadPoolExecutor() as pool:
        reports = [pool.submit(LocalStack(stack.place.root).up, None, DATABASE) for _ in range(2)]
        started = sorted(report.result().started for report in reports)
    assert started == [(), DATABASE]
    # A child that was just forked has the command line of its server for a moment.
    servers = processes.without_descendants(processes.marked(stack.place.marker))
    assert len([server for server in servers if "-D" in server.cmdline()]) == 1


def test_a_killed_server_is_started_again(stack: LocalStack) -> None:
    stack.up(services=DATABASE)
    execute(stack, "CREATE TABLE kept AS SELECT 7 AS n")
    kill(pid_of(stack))
    assert status_of(stack, "postgres").state == "stopped"
    assert stack.up(services=DATABASE).started == DATABASE
    assert execute(stack, "SELECT n FROM kept") == [(7,)]


def test_a_stack_that_is_recorded_nowhere_is_found_and_ended(stack: LocalStack) -> None:
    stack.up(services=DATABASE)
    forgotten = pid_of(stack)
    stack.place.state.unlink()
    assert stack.up(services=DATABASE).started == DATABASE
    assert not psutil.pid_exists(forgotten)
    stack.place.state.write_text("{ broken")
    assert stack.down().stopped == DATABASE


def test_a_recorded_id_that_belongs_to_somebody_else_is_left_alone(stack: LocalStack) -> None:
    stack.place.make_folders()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        created = psutil.Process(stranger.pid).create_time()
        stack.place.state.write_text(f'{{"processes": {{"postgres": [{stranger.pid}, {created}]}}}}')
        stack.down()
        assert stranger.poll() is None
        stranger.communicate(b"\n")


def test_a_trace_of_a_server_whose_id_is_taken_does_not_hinder(stack: LocalStack) -> None:
    stack.up(services=DATABASE)
    trace = stack.place.data / "postgres" / "postmaster.pid"
    lines = trace.read_text().splitlines()
    stack.down()
    trace.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")
    shutil.chown(trace, trace.parent.owner())
    assert stack.up(services=DATABASE).started == DATABASE


def test_an_up_that_was_killed_leaves_a_stack_that_the_next_takes_over(stack: LocalStack) -> None:
    code = (
        "import sys, time, pathlib; from prism_local.stack import LocalStack\n"
        "LocalStack(pathlib.Path(sys.argv[1])).up(services=['postgres'])\n"
        "print('up', flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", code, str(stack.place.root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path.cwd()) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        starter.send_signal(signal.SIGKILL)
    assert stack.up(services=DATABASE).started == ()


def test_a_folder_that_was_moved_takes_its_servers_along(stack: LocalStack, tmp_path: Path) -> None:
    stack.up(services=DATABASE)
    before = pid_of(stack)
    stack.place.root.rename(tmp_path / "moved")
    moved = LocalStack(tmp_path / "moved")
    try:
        assert moved.up(services=DATABASE).started == DATABASE
        assert not psutil.pid_exists(before)
    finally:
        moved.down()


def test_down_is_harmless_when_nothing_runs(stack: LocalStack) -> None:
    assert stack.down().stopped == ()
    assert not stack.place.root.exists()


def test_a_hanging_server_is_killed(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    launch = processes.Launch([sys.executable, "-c", code, "prism-local-test"], dict(os.environ), tmp_path)
    process = processes.spawn(launch, tmp_path / "log")
    while not (tmp_path / "log").read_text():
        time.sleep(0.01)
    assert processes.stop(process, signal.SIGTERM, patience=0.2) == [process.pid]
    assert processes.marked("prism-local-test") == []


def test_secrets_are_private_and_on_no_command_line(stack: LocalStack) -> None:
    stack.up(services=("postgres", "aws"))
    for file in (stack.place.env, stack.place.credentials, *stack.place.logs.iterdir()):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    settings = stack.environment()
    secrets = [settings["PRISM_DAGSTER_PG_PASSWORD"], settings["AWS_SECRET_ACCESS_KEY"]]
    words = [word for process in processes.marked(stack.place.marker) for word in process.cmdline()]
    logs = [file.read_text() for file in stack.place.logs.iterdir()]
    assert not [text for text in words + logs for secret in secrets if secret in text]


def test_a_kept_port_that_was_taken_is_replaced(stack: LocalStack) -> None:
    stack.up(services=DATABASE)
    port = status_of(stack, "postgres").port
    assert port is not None
    stack.down()
    with occupy(port):
        stack.up(services=DATABASE)
        assert status_of(stack, "postgres").port != port
        assert execute(stack, "SELECT 1") == [(1,)]


def test_a_named_port_in_use_is_an_error_in_one_sentence(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    with occupy(0) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setenv("PRISM_LOCAL_POSTGRES_PORT", str(port))
        with pytest.raises(TerminalError, match=f"port {port}, named by PRISM_LOCAL_POSTGRES_PORT") as caught:
            stack.up(services=DATABASE)
    assert not isinstance(caught.value, WrongUse)
    assert "\n" not in str(caught.value)


def test_a_server_moves_to_the_port_that_is_named(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack.up(services=DATABASE)
    wanted = ports.choose("postgres", None, set())
    monkeypatch.setenv("PRISM_LOCAL_POSTGRES_PORT", str(wanted))
    assert stack.up(services=DATABASE).started == DATABASE
    assert status_of(stack, "postgres").port == wanted
    assert execute(stack, "SELECT 1") == [(1,)]


def test_the_log_of_a_server_that_ended_by_itself_is_kept_and_named(stack: LocalStack) -> None:
    stack.up(services=DATABASE)
    log = stack.place.log("postgres")
    before = log.read_text()
    kill(pid_of(stack))
    told: list[str] = []
    stack.up(services=DATABASE, progress=lambda _service, message: told.append(message))
    kept = log.with_name("postgres.log.1")
    assert f"ended by itself after its last start; {kept} is its log from now on" in told
    assert kept.read_text().startswith(before)


def test_a_server_that_dies_shows_the_end_of_its_log(stack: LocalStack) -> None:
    stack.up(services=DATABASE)
    stack.down()
    (stack.place.data / "postgres" / "global" / "pg_control").unlink()
    with pytest.raises(TerminalError, match=r"(?s)postgres ended while.*postgres\.log.*pg_control"):
        stack.up(services=DATABASE)


def test_lost_credentials_are_reported_as_such(stack: LocalStack) -> None:
    stack.up(services=DATABASE)
    stack.down()
    stack.place.credentials.unlink()
    with pytest.raises(TerminalError, match="restore that file, or run `prism local reset`"):
        stack.up(services=DATABASE)


def test_reset_deletes_everything(stack: LocalStack) -> None:
    stack.up(services=DATABASE)
    stack.reset()
    assert [path.name for path in stack.place.root.iterdir()] == ["lock"]
    stack.up(services=DATABASE)
