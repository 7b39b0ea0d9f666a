"""Commands of `dagster` and `dg` in one child process, because its imports take longer than most commands.

`python -m prism_assets_tests.defs.commands` reads commands as JSON, and prints how each of them ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

_DEFINITIONS = "prism_assets.definitions"


@dataclass(frozen=True)
class Command:
    """`dagster` or `dg` with its arguments."""

    words: Sequence[str]
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment of this command alone."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files of the folder that are written first."""


@dataclass(frozen=True)
class Ended:
    """The end of one command, with both of its outputs."""

    status: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        """Both outputs."""
        return self.stdout + self.stderr


def run_commands(folder: Path, environment: Mapping[str, str], commands: Sequence[Command]) -> list[Ended]:
    """Runs commands one after another in a folder, each with definitions loaded anew."""
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        cwd=folder,
        env=dict(environment),
        input=json.dumps([asdict(command) for command in commands]),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [Ended(**ended) for ended in json.loads(done.stdout)]


def _run_all() -> list[dict[str, Any]]:
    return [_run(**command) for command in json.load(sys.stdin)]


def _run(words: list[str], settings: dict[str, str], files: dict[str, str]) -> dict[str, Any]:
    for path, text in files.items():
        Path(path).write_text(text)
    before = dict(os.environ)
    os.environ.update(settings)
    sys.argv = words
    sys.modules.pop(_DEFINITIONS, None)
    with TemporaryFile() as out, TemporaryFile() as errors:
        with _sent_to(1, out), _sent_to(2, errors):
            status = _status(words[0])
        os.environ.clear()
        os.environ.update(before)
        return {"status": status, "stdout": _text(out), "stderr": _text(errors)}


def _status(program: str) -> int:
    try:
        if program == "dg":
            from dagster_dg_cli.cli import main
        else:
            from dagster._cli import main
        main()  # type: ignore[no-untyped-call]
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(bool(end.code))
    return 0


@contextmanager
def _sent_to(descriptor: int, file: BinaryIO) -> Iterator[None]:
    """Sends an output to a file, also from loggers that hold the stream."""
    kept = os.dup(descriptor)
    os.dup2(file.fileno(), descriptor)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os.dup2(kept, descriptor)
        os.close(kept)


def _text(file: BinaryIO) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


if __name__ == "__main__":
    print(json.dumps(_run_all()))
