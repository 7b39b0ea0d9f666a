"""The judgement of a reader's answer: right, a trap, wrong, failed, not run."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

from prism_local.readers.answers import Judged, Outcome, Replies, Reply, Verdict, judged, not_run, rows_of
from prism_local.readers.questions import Question

QUESTION = Question.ONE_DAY
RIGHT = {("pv_log", QUESTION): rows_of([(3, 3)]), ("api_log", QUESTION): rows_of([(2, 2)])}
PV_LOG, API_LOG = Reply(rows_of([(3, 3)])), Reply(rows_of([(2, 2)]))


def verdict(pv_log: Reply | None = PV_LOG, api_log: Reply | None = API_LOG, failure: str = "") -> Verdict:
    said = {("pv_log", QUESTION): pv_log, ("api_log", QUESTION): api_log}
    replies = {asked: reply for asked, reply in said.items() if reply is not None}
    return judged("a reader", RIGHT, Replies("1.0", replies, failure), [QUESTION]).verdicts[QUESTION]


def test_a_question_is_right_if_it_is_so_of_every_table() -> None:
    assert verdict() == Verdict(Outcome.RIGHT)


def test_a_wrong_answer_of_one_table_is_told_with_the_right_one() -> None:
    assert verdict(api_log=Reply(rows_of([(0, None)]))) == Verdict(
        Outcome.WRONG, "log.api_log: [0, null] and not [2, 2]"
    )


def test_a_right_answer_beside_a_wrong_way_to_ask_is_a_trap() -> None:
    found = verdict(pv_log=Reply(rows_of([(3, 3)]), remark="a short cut counts 5"))
    assert found == Verdict(Outcome.TRAP, "log.pv_log: a short cut counts 5")


def test_wrong_is_told_before_failed() -> None:
    assert verdict(Reply(error="no route"), Reply(rows_of([]))).outcome is Outcome.WRONG
    assert verdict(Reply(error="no route")) == Verdict(Outcome.FAILED, "no route")


def test_what_a_reader_cannot_do_is_not_run_and_told_once() -> None:
    cannot = Reply(error="the head alone", is_skipped=True)
    assert verdict(cannot, cannot) == Verdict(Outcome.NOT_RUN, "the head alone")


def test_a_reader_that_ended_early_failed_at_what_it_left_out() -> None:
    assert verdict(api_log=None, failure="no answer within 300 s") == Verdict(Outcome.FAILED, "no answer within 300 s")


def test_a_question_that_no_table_can_be_asked_is_not_run() -> None:
    found = judged("a reader", RIGHT, Replies(), [Question.SNAPSHOT])
    assert found.verdicts[Question.SNAPSHOT].outcome is Outcome.NOT_RUN
    assert found.is_sound


def test_wrong_and_failed_are_not_sound_and_all_else_is() -> None:
    sound = {outcome: Judged("a reader", "", {QUESTION: Verdict(outcome)}).is_sound for outcome in Outcome}
    assert [outcome for outcome, fine in sound.items() if not fine] == [Outcome.WRONG, Outcome.FAILED]
    assert not_run("Trino", "no server").is_sound


def test_rows_compare_whatever_their_order_and_the_types_of_an_engine() -> None:
    of_one = rows_of([(date(2026, 11, 20), 3), (None, Decimal(1))])
    of_another = rows_of([[None, "1"], ["2026-11-20", 3]])
    assert of_one == of_another


def test_of_many_wrong_rows_three_are_told() -> None:
    right = {("pv_log", QUESTION): rows_of([(0,)])}
    replies = Replies("", {("pv_log", QUESTION): Reply(rows_of([(n,) for n in range(1, 7)]))})
    reason = judged("a reader", right, replies, [QUESTION]).verdicts[QUESTION].reason
    assert reason == "log.pv_log: [1 | 2 | 3] and 3 more rows and not [0]"
