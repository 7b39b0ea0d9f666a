"""Runs a reader's program in its own process for a limited time, and collects its answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from prism_local.readers.answers import Replies, Reply, rows_of
from prism_local.readers.known import HARNESS, Reader
from prism_local.readers.questions import AskedTable, Question

_OF_OUR_PYTHON = ("PYTHONPATH", "PYTHONHOME")
_LONGEST_REASON = 300


def ask(
    reader: Reader,
    python: Path,
    tables: Iterable[AskedTable],
    *,
    seconds: float,
    secrets: Collection[str],
    questions: Collection[Question] = tuple(Question),
) -> Replies:
    """Asks one reader all questions about its tables.

    The environment of this process supplies connection settings and keys. `secrets` are removed from error messages.
    """
    asked = list(tables)
    lines = [json.dumps(table.as_json(item)) for table in asked for item in table.questions if item in questions]
    process = subprocess.Popen(
        [str(python), str(HARNESS), str(reader.path)],
        env=_environment(asked, is_ours=not reader.packages),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        start_new_session=True,
    )
    ended = True
    try:
        out, errors = process.communicate("\n".join(lines), timeout=seconds)
    except subprocess.TimeoutExpired:
        ended = False
        _kill(process)
        out, errors = process.communicate()
    except BaseException:
        _kill(process)
        raise
    failure = _failure(process.returncode, errors) if ended else f"no answer within {seconds:.0f} s"
    return read_replies(out.splitlines(), failure, secrets)


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _environment(tables: Iterable[AskedTable], *, is_ours: bool) -> dict[str, str]:
    """Adds a variable with each table's metadata file, as the lines to paste expect."""
    kept = {name: value for name, value in os.environ.items() if is_ours or name not in _OF_OUR_PYTHON}
    return kept | {table.name.upper(): table.metadata_location for table in tables}


def _failure(status: int, errors: str) -> str:
    if status == 0:
        return ""
    lines = [line for line in errors.strip().splitlines() if line.strip()]
    return lines[-1] if lines else f"it ended with status {status}"


def read_replies(lines: Iterable[str], failure: str, secrets: Collection[str] = ()) -> Replies:
    """Reads a program's output line by line, also if it ended in the middle of a line."""
    version, replies = "", {}
    for line in lines:
        try:
            message: Mapping[str, Any] = json.loads(line)
        except ValueError:
            continue
        version = message.get("version", version)
        if "question" in message:
            replies[str(message["table"]), Question[message["question"]]] = _reply(message, secrets)
    return Replies(version, replies, _redacted(failure, secrets))


def _reply(said: Mapping[str, Any], secrets: Collection[str]) -> Reply:
    if "rows" in said:
        return Reply(rows_of(said["rows"]), remark=_redacted(said.get("remark") or "", secrets))
    reason = said.get("skipped") or said.get("error") or "it says nothing"
    return Reply(error=_redacted(reason, secrets), is_skipped="skipped" in said)


def _redacted(text: str, secrets: Collection[str]) -> str:
    """Returns text in one line, shortened, and without secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…")
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
