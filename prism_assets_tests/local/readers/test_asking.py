"""Programs of readers in their own processes: their answers, their output, and their end."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from prism_assets_tests.local.readers.test_questions import a_table
from prism_local.readers.answers import Outcome, Replies, judged, rows_of
from prism_local.readers.asking import ask, read_replies
from prism_local.readers.known import Reader
from prism_local.readers.questions import Question

ALL = ("api_log", Question.ALL_ROWS)


@dataclass(frozen=True)
class AReader(Reader):
    file: Path = Path()

    @property
    def path(self) -> Path:
        return self.file


def said(
    tmp_path: Path, program: str, *, seconds: float = 60, questions: tuple[Question, ...] = (Question.ALL_ROWS,)
) -> Replies:
    file = tmp_path / "with_a_reader.py"
    file.write_text(f"def version():\n    return '1.0'\n\n{program}\n")
    reader = AReader("a reader", "with_a_reader", file=file)
    return ask(reader, Path(sys.executable), [a_table()], seconds=seconds, secrets=["s3cret"], questions=questions)


def test_what_a_program_prints_is_no_answer(tmp_path: Path) -> None:
    found = said(tmp_path, "print('a banner')\ndef answer(asked):\n    print('more')\n    return [(1, None)]")
    assert found == Replies("1.0", {ALL: found.replies[ALL]})
    assert found.replies[ALL].rows == rows_of([(1, None)])


def test_a_program_of_sql_gets_the_table_and_times_in_its_own_words(tmp_path: Path) -> None:
    program = (
        "TIME = 'at({})'\n"
        "def source(asked):\n    return 'scan(' + asked['identifier'] + ')'\n"
        "def query(sql):\n    return [[sql]]"
    )
    found = said(tmp_path, program, questions=(Question.TIME_RANGE,))
    (((sql,),),) = (found.replies["api_log", Question.TIME_RANGE].rows or (),)
    assert sql is not None
    assert sql.endswith(
        "FROM scan(log_iceberg.api_log) WHERE time >= at(2026-11-20 08:00:00) AND time < at(2026-11-20 10:00:00)"
    )


def test_the_metadata_file_is_in_the_environment_under_the_name_of_the_table(tmp_path: Path) -> None:
    found = said(tmp_path, "import os\ndef answer(asked):\n    return [[os.environ['API_LOG']]]")
    assert found.replies[ALL].rows == ((a_table().metadata_location,),)


def test_an_error_is_told_without_secrets_and_the_next_question_is_asked(tmp_path: Path) -> None:
    program = (
        "def answer(asked):\n"
        "    if asked['question'] == 'ALL_ROWS':\n        raise OSError('denied: s3cret')\n"
        "    raise NotImplementedError('no snapshots')"
    )
    found = said(tmp_path, program, questions=(Question.ALL_ROWS, Question.SNAPSHOT))
    assert found.replies[ALL].error == "OSError: denied: …"
    assert found.replies["api_log", Question.SNAPSHOT].is_skipped


def test_a_program_that_is_too_slow_keeps_what_it_said_before(tmp_path: Path) -> None:
    program = (
        "import time\ndef answer(asked):\n"
        "    time.sleep(600 if asked['question'] == 'BY_DAY' else 0)\n    return [(1,)]"
    )
    found = said(tmp_path, program, seconds=3, questions=(Question.ALL_ROWS, Question.BY_DAY))
    verdicts = judged("a reader", {ALL: (("1",),), ("api_log", Question.BY_DAY): (("1",),)}, found).verdicts
    assert verdicts[Question.ALL_ROWS].outcome is Outcome.RIGHT
    assert (verdicts[Question.BY_DAY].outcome, verdicts[Question.BY_DAY].reason) == (
        Outcome.FAILED,
        "no answer within 3 s",
    )


def test_a_program_that_cannot_begin_says_why(tmp_path: Path) -> None:
    assert said(tmp_path, "import no_such_reader").failure.startswith("ModuleNotFoundError: No module named")


@pytest.mark.parametrize("line", ['{"table": "api_log", "ques', "", "Segmentation fault"])
def test_a_line_that_is_no_answer_is_passed_over(line: str) -> None:
    assert read_replies(['{"version": "1.0"}', line], "") == Replies("1.0")
