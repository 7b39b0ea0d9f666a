"""Results stream back while tasks run, and a job that is left ends: on classic masters and over Spark Connect."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from prism_assets.engine import sessions
from prism_assets.engine.sessions import connect
from prism_assets_tests.engine.job_scenarios import SCENARIOS

# pyspark leaves sockets open and calls deprecated code.
pytestmark = [pytest.mark.stack, pytest.mark.filterwarnings("default")]


@pytest.fixture
def remote(stack: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The Connect server of the local stack."""
    for name, value in stack.items():
        monkeypatch.setenv(name, value)
    sessions._forget()
    yield stack["PRISM_SPARK_REMOTE"]
    sessions._forget()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_over_spark_connect(scenario: Callable[[Any, Path], None], remote: str, tmp_path: Path) -> None:
    scenario(connect(remote), tmp_path)


def test_in_a_driver_of_its_own(tmp_path: Path) -> None:
    foreign = ("SPARK_CONNECT_MODE_ENABLED", "SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_HOME")
    own = {key: value for key, value in os.environ.items() if key not in foreign}
    done = subprocess.run(
        [sys.executable, "-m", "prism_assets_tests.engine.job_scenarios", "local[2]", str(tmp_path)],
        env={**own, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-5000:]}"
