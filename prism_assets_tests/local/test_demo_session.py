"""The folder and the environment of `prism local demo`; the long form of `install/` plays it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from prism_assets.domain.errors import WrongUse
from prism_assets.stages.apply.files import parse_table_files
from prism_local import processes
from prism_local.demo import session as demo_session
from prism_local.demo.play import ALL
from prism_local.demo.session import DemoSession, demo_tables
from prism_local.faults import StackError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DemoSession:
    monkeypatch.chdir(tmp_path)
    return DemoSession(Path("demo"), Console(file=StringIO()))


def files_of(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_new_folder_gets_the_tables_of_the_play_and_dagster(session: DemoSession, tmp_path: Path) -> None:
    session._write_folder()
    tables, problems = parse_table_files(tmp_path / "demo" / "tables")
    assert problems == []
    assert {str(table.name) for table in tables} == set(ALL)
    rest = {name for name in files_of(tmp_path / "demo") if not name.startswith("tables/")}
    assert rest == {".gitignore", "dagster.yaml", "workspace.yaml"}


def test_a_second_demo_keeps_what_was_edited(session: DemoSession, tmp_path: Path) -> None:
    session._write_folder()
    edited = tmp_path / "demo" / "tables" / "log" / "pv_log.yaml"
    edited.write_text(edited.read_text() + "# mine\n")
    before = files_of(tmp_path / "demo")
    session._write_folder()
    assert files_of(tmp_path / "demo") == before


def test_a_clone_has_every_file_of_the_demo() -> None:
    tables = demo_tables()
    assert {name for name in tables if not (ROOT / name).is_file()} == set()
    assert {f"tables/log/{path.name}" for path in (ROOT / "tables" / "log").iterdir()} == set(tables)


def test_the_tables_of_somebody_else_are_named_and_nothing_is_begun(session: DemoSession, tmp_path: Path) -> None:
    theirs = tmp_path / "demo" / "tables" / "web" / "hits.yaml"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("schema: web\n")
    with pytest.raises(StackError, match=r"hits\.yaml is no table of the demo: name another folder; nothing was begun"):
        session.run(once=True, kafka=False)
    assert files_of(tmp_path / "demo") == {"tables/web/hits.yaml": "schema: web\n"}


def test_a_file_in_the_place_of_the_folder_is_refused(session: DemoSession, tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("")
    with pytest.raises(WrongUse, match="is no folder"):
        session.run(once=True, kafka=False)


@pytest.mark.parametrize("port", ["many", "0", "65536"])
def test_a_wrong_port_of_the_ui_is_named_before_the_play(
    session: DemoSession, port: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PRISM_UI_PORT", port)
    with pytest.raises(StackError, match=f"PRISM_UI_PORT={port} is not a port"):
        session.run(once=False, kafka=False)
    assert not (tmp_path / "demo").exists()


def test_the_demo_plays_on_no_database_of_the_callers_environment(
    session: DemoSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PRISM_DATABASE_URL", "postgresql://production/prism")
    monkeypatch.setenv("AWS_PROFILE", "production")
    monkeypatch.setenv("PRISM_LOCAL_CORES", "1")
    environment = session._environment()
    assert "production" not in str(environment.values())
    assert environment["PRISM_LOCAL_CORES"] == "1"
    assert environment["PRISM_HOME"] == str(tmp_path / "demo" / ".prism")


def test_the_command_of_the_wheel_reports_a_wrong_use_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("")
    command = "from prism_local.commands import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command, "demo", str(tmp_path / "demo"), "--once"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"prism: {tmp_path / 'demo'} is no folder: name another folder; nothing was written\n"


_LEADER = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.{handler})
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
time.sleep(600)
"""


@contextmanager
def a_family(handler: str) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """The leader of a group, as Dagster's parent is, and its child."""
    words = [sys.executable, "-c", _LEADER.format(handler=handler)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as leader:
        assert leader.stdout is not None
        yield leader, psutil.Process(int(leader.stdout.readline()))


@pytest.mark.parametrize("handler", ["SIG_DFL", "SIG_IGN"])
def test_the_end_of_the_ui_leaves_no_process(handler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the daemon of a parent that ends first, nor a parent that does not end."""
    monkeypatch.setattr(demo_session, "_ENDS_WITHIN", 1.0)
    with a_family(handler) as (leader, child):
        demo_session._end(leader)
        assert not processes.wait([child], 30)
    assert leader.returncode == -(signal.SIGTERM if handler == "SIG_DFL" else signal.SIGKILL)


def test_the_end_of_the_ui_ends_the_daemon_of_a_parent_that_is_gone() -> None:
    with a_family("SIG_DFL") as (leader, child):
        leader.terminate()
        leader.wait(30)
        assert processes.is_alive(child)
        demo_session._end(leader)
        assert not processes.wait([child], 30)
