"""The answers of readers, and the verdicts on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum

from prism_local.readers.questions import Question

Rows = tuple[tuple[str | None, ...], ...]
"""The rows of an answer in a fixed order, each value as text."""
Asked = tuple[str, Question]
"""A table and a question about it."""


def rows_of(rows: Iterable[Sequence[object]]) -> Rows:
    """Converts rows of any engine to the form for comparisons."""
    texts = [tuple(_text(value) for value in row) for row in rows]
    return tuple(sorted(texts, key=lambda row: [(value is not None, value or "") for value in row]))


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return value.isoformat() if isinstance(value, date) else str(value)


@dataclass(frozen=True)
class Reply:
    """One answer: rows, or the reason for their absence. `remark` describes another way to ask with a wrong result."""

    rows: Rows | None = None
    error: str = ""
    is_skipped: bool = False
    remark: str = ""


@dataclass(frozen=True)
class Replies:
    """All output of a reader's program. `failure` is why it ended early or did not start."""

    version: str = ""
    replies: Mapping[Asked, Reply] = field(default_factory=dict)
    failure: str = ""


class Outcome(Enum):
    """The outcome of one question to one reader; the value is shown in the table.

    A trap is right as asked, but wrong in another way that users may well choose.
    """

    RIGHT = "right"
    TRAP = "trap"
    WRONG = "wrong"
    FAILED = "failed"
    NOT_RUN = "not run"


@dataclass(frozen=True)
class Verdict:
    """The outcome of a question, with the reason unless it is right."""

    outcome: Outcome
    reason: str = ""


@dataclass(frozen=True)
class Judged:
    """A reader with the verdict on each question."""

    name: str
    version: str
    verdicts: Mapping[Question, Verdict]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong or failed. Questions not run do not count."""
        return not any(verdict.outcome in (Outcome.WRONG, Outcome.FAILED) for verdict in self.verdicts.values())


def not_run(name: str, reason: str) -> Judged:
    """Returns the verdicts of a reader that was not asked."""
    return Judged(name, "", {question: Verdict(Outcome.NOT_RUN, reason) for question in Question})


def judged(
    name: str, right: Mapping[Asked, Rows], replies: Replies, questions: Iterable[Question] = Question
) -> Judged:
    """Compares a reader's answers with the right ones. A question is right if it is right for every table."""
    verdicts = {question: _verdict(question, right, replies) for question in questions}
    return Judged(name, replies.version, verdicts)


def _verdict(question: Question, right: Mapping[Asked, Rows], replies: Replies) -> Verdict:
    """Returns the worst outcome over all tables, with its reasons."""
    nothing = Reply(error=replies.failure or "it says nothing")
    found = [
        _compared(asked[0], rows, replies.replies.get(asked, nothing))
        for asked, rows in right.items()
        if asked[1] is question
    ]
    if not found:
        return Verdict(Outcome.NOT_RUN, "no table can be asked this now")
    for outcome in (Outcome.WRONG, Outcome.FAILED, Outcome.NOT_RUN, Outcome.TRAP):
        if reasons := [item.reason for item in found if item.outcome is outcome]:
            return Verdict(outcome, "; ".join(dict.fromkeys(reasons)))
    return Verdict(Outcome.RIGHT)


def _compared(table: str, right: Rows, reply: Reply) -> Verdict:
    if reply.rows is None:
        return Verdict(Outcome.NOT_RUN if reply.is_skipped else Outcome.FAILED, reply.error)
    if reply.rows != right:
        return Verdict(Outcome.WRONG, f"log.{table}: {_shown(reply.rows, right)} and not {_shown(right, reply.rows)}")
    return Verdict(Outcome.TRAP, f"log.{table}: {reply.remark}") if reply.remark else Verdict(Outcome.RIGHT)


def _shown(rows: Rows, other: Rows) -> str:
    """Returns rows missing on the other side, at most three."""
    missing = [row for row in rows if row not in other]
    texts = [", ".join("null" if value is None else value for value in row) for row in missing[:3]]
    more = f" and {len(missing) - 3} more rows" if len(missing) > 3 else ""
    return f"[{' | '.join(texts)}]{more}"
