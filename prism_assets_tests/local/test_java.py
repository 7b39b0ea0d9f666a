"""Messages about a missing, too old or broken Java."""

from pathlib import Path

import pytest

from prism_assets.domain.errors import TerminalError
from prism_local import java
from prism_local.stack import LocalStack


def fake_java(folder: Path, script: str) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "25-ea" 2025-09-16', 25),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
    ],
)
def test_versions_are_read(text: str, version: int | None) -> None:
    assert java.parse(text) == version


def test_missing_java_says_what_to_install(stack: LocalStack) -> None:
    with pytest.raises(TerminalError, match=r"Java was not found: install Java 17 .*openjdk-17-jre-headless"):
        stack.up(services=("s3",))
    assert {status.state for status in stack.status()} == {"stopped"}


def test_old_java_says_which_one_it_is(tmp_path: Path) -> None:
    program = fake_java(tmp_path, """echo 'openjdk version "11.0.2" 2019-01-15' >&2""")
    with pytest.raises(TerminalError, match=f"{program} is Java 11, and Spark needs 17 or newer"):
        java.require()


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, "exit 1")
    fake_java(tmp_path / "home", """echo 'openjdk version "21.0.1"' >&2""")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert java.require() == 21
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(TerminalError, match="holds no bin/java"):
        java.require()


def test_java_that_does_not_work_is_not_accepted(tmp_path: Path) -> None:
    fake_java(tmp_path, "echo 'Unable to locate a Java Runtime' >&2; exit 1")
    with pytest.raises(TerminalError, match="is not a working Java"):
        java.require()
