"""The long forms: each Python installs the wheels from a local index, and an old worker runs beside a new one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest

from prism_assets_tests.command.prism import environment
from prism_assets_tests.install.clean import (
    Environment,
    borrow_dependencies,
    build_previous_wheels,
    build_wheels,
    install_all,
)
from prism_assets_tests.install.workers import a_worker, await_holders, await_rows, work_at_the_same_time
from prism_assets_tests.world import World
from prism_local.stack import LocalStack

VERSIONS = (("3.10", "pip"), ("3.11", "uv"), ("3.12", "uv"), ("3.13", "uv"))
"""Versions of Python, and the programs that install for them."""
ROWS = [[1], [2], [3]]
_FIRST_COUNTS_WITHIN = 60.0
"""Seconds on a machine that does nothing else."""


@pytest.fixture(autouse=True)
def _only_long(long: bool) -> None:
    if not long:
        pytest.skip("takes minutes: scripts/test --long")


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory, long: bool) -> Path:
    """Builds all wheels. The release build of the kernel takes minutes."""
    if not long:
        pytest.skip("takes minutes: scripts/test --long")
    return build_wheels(tmp_path_factory.mktemp("dist"))


def python_of(version: str) -> Path:
    """Returns an interpreter of the path, or of pyenv. Skips the test without one."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    for candidate in [*([Path(on_path)] if on_path else []), *sorted(pyenv.glob(f"{version}.*/bin/python"))]:
        # A shim of pyenv answers only for its chosen versions.
        asked = subprocess.run([candidate, "-c", "import ensurepip, venv"], capture_output=True, check=False)
        if asked.returncode == 0:
            return candidate
    pytest.skip(f"Python {version} is not on this machine")


@pytest.mark.parametrize(("version", "installer"), VERSIONS)
def test_a_new_environment_goes_from_the_index_to_rows_in_three_readers(
    version: str, installer: str, wheels: Path, tmp_path: Path
) -> None:
    begun = time.monotonic()
    desk = install_all(tmp_path / "venv", python_of(version), wheels, installer)
    print(f"\nPython {version}: installed after {time.monotonic() - begun:.0f} s")
    lines = "".join(f'{{"time": "{datetime.now(timezone.utc):%FT%TZ}", "user_id": {number}}}\n' for (number,) in ROWS)
    (tmp_path / "signups.jsonl").write_text(lines)
    url = "s3://prism-staging/signups/"
    desk.run("prism", "init", "lake", "--table", "log.signups", "--sample", "signups.jsonl", "--url", url, cwd=tmp_path)
    lake = tmp_path / "lake"
    with (lake / "tables" / "log" / "signups.yaml").open("a") as file:
        file.write("iceberg: true\n")
    try:
        desk.run("prism", "local", "up", cwd=lake)
        desk.run("prism", "table", "apply", cwd=lake)
        desk.run("prism", "local", "put", tmp_path / "signups.jsonl", url, cwd=lake)
        desk.run("prism", "local", "up", "--worker", cwd=lake)
        _await_query(desk, lake)
        desk.run("prism", "run", cwd=lake)
        found = json.loads(desk.run("python", Path(__file__).with_name("readers.py"), cwd=lake))
        assert (found["manifest"], found["iceberg"]) == (ROWS, ROWS)
        assert Path(found["code"]).is_relative_to(desk.folder)
        assert "nothing is wrong" in desk.run("prism", "doctor", cwd=lake)
        connected = desk.with_settings({**LocalStack(lake / ".prism").environment(), "DAGSTER_HOME": str(lake)})
        connected.run("dagster", "definitions", "validate", "-w", "workspace.yaml", cwd=lake)
    finally:
        desk.run("prism", "local", "reset", "--yes", cwd=lake)
    print(f"Python {version}: rows in three readers after {time.monotonic() - begun:.0f} s")
    _play_demo(desk, tmp_path, version)


def _await_query(desk: Environment, lake: Path) -> None:
    deadline = time.monotonic() + 300
    expected = [{"user_id": number} for (number,) in ROWS]
    query = ("prism", "query", "SELECT user_id FROM log.signups ORDER BY 1", "--json")
    while True:
        done = subprocess.run(
            [desk.folder / "bin" / query[0], *query[1:]],
            cwd=lake,
            env=dict(desk.variables),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode == 0 and json.loads(done.stdout) == expected:
            return
        assert time.monotonic() < deadline, done
        time.sleep(1)


def _play_demo(desk: Environment, folder: Path, version: str) -> None:
    """Plays the demo without a clone. Its first counts come within a minute, or later where others have the cores."""
    begun, counted = time.monotonic(), None
    said = []
    with subprocess.Popen(
        [desk.folder / "bin" / "prism-local", "demo", "--once"],
        cwd=folder,
        env={**desk.variables, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            said.append(line)
            if counted is None and line.startswith("  log.pv_log "):
                counted = time.monotonic() - begun
    assert demo.returncode == 0, "".join(said)
    assert any("every row is there exactly once" in line for line in said)
    assert counted is not None
    busy = max(1.0, os.getloadavg()[1] / (os.cpu_count() or 1))
    print(f"Python {version}: the demo showed its first counts after {counted:.0f} s at {busy:.1f} tasks a core")
    assert counted < _FIRST_COUNTS_WITHIN * busy


TABLES = ("signups", "logins")


def test_an_old_worker_works_beside_a_new_one_and_hands_over(world: World, tmp_path: Path) -> None:
    """No row is lost or doubled. Each worker has one of the two tables for as long as both live."""
    previous, wheels = build_previous_wheels(tmp_path / "previous"), build_wheels(tmp_path / "dist", "--no-kernel")
    settings = {name: value for name, value in environment(world).items() if name != "PRISM_TABLES_DIR"}
    aws = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
    old = borrow_dependencies(tmp_path / "old", previous).with_settings({**settings, **aws})
    new = borrow_dependencies(tmp_path / "new", wheels).with_settings({**settings, **aws})
    (tmp_path / "sample.jsonl").write_text(_line(0))
    first = ("--table", "log.signups", "--sample", "sample.jsonl", "--url", "s3://staging/signups/")
    new.run("prism", "init", ".", *first, cwd=tmp_path)
    folder = tmp_path / "tables" / "log"
    (folder / "logins.yaml").write_text((folder / "signups.yaml").read_text().replace("signups", "logins"))
    old.run("prism", "table", "apply", cwd=tmp_path)

    with a_worker(old, tmp_path) as leaving:
        sent = _drop(world, 0, 20)
        _await_all(world, sent)
        new.run("prism", "table", "apply", cwd=tmp_path)
        with a_worker(new, tmp_path) as staying:
            await_holders(world, 2)
            deadline = time.monotonic() + 300
            while not work_at_the_same_time(world):
                assert time.monotonic() < deadline, "they never worked at the same time"
                sent = _drop(world, sent, 10)
                _await_all(world, sent)
            leaving.send_signal(signal.SIGTERM)
            sent = _drop(world, sent, 20)
            assert leaving.wait(120) == 0
            _await_all(world, sent)
            await_holders(world, 1)
            staying.send_signal(signal.SIGTERM)
            assert staying.wait(120) == 0
    for table in TABLES:
        ids = [number for (number,) in world.query(f"SELECT user_id FROM log.{table} ORDER BY 1")]
        assert ids == list(range(sent)), table
    assert "nothing is wrong" in new.run("prism", "doctor", cwd=tmp_path)


def _line(number: int) -> str:
    return f'{{"time": "{datetime.now(timezone.utc):%FT%TZ}", "user_id": {number}}}\n'


def _drop(world: World, first: int, objects: int) -> int:
    """Puts objects of two rows each for each table. Returns the number of rows of a table so far."""
    for number in range(first, first + 2 * objects, 2):
        for table in TABLES:
            world.drop([], stream=table, body=(_line(number) + _line(number + 1)).encode())
    return first + 2 * objects


def _await_all(world: World, rows: int) -> None:
    for table in TABLES:
        await_rows(world, rows, f"log.{table}")
