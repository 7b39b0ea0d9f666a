"""The grammar of failpoints, and what they do."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from prism_assets import failpoints
from prism_assets.domain.errors import LeaseLost, SettingsError
from prism_assets.failpoints import InjectedFault, failpoint, parse


def arm(patch: pytest.MonkeyPatch, text: str) -> None:
    patch.setattr(failpoints, "_POINTS", parse(text))


def test_a_term_has_percent_count_action_and_argument() -> None:
    (term,) = parse("merge.after_put=12.5%3*sleep(0.2)")["merge.after_put"]
    assert (term.percent, term.left, term.action, term.argument) == (12.5, 3, "sleep", "0.2")


def test_terms_are_chained_and_entries_are_separated() -> None:
    found = parse("a=3*off->1*kill9 ; b=raise(LeaseLost);")
    assert [term.action for term in found["a"]] == ["off", "kill9"]
    assert [term.argument for term in found["b"]] == ["LeaseLost"]


def test_nothing_is_no_failpoint() -> None:
    assert parse("") == {}


@pytest.mark.parametrize("text", ["a", "a=", "a=explode", "a=off->", "a=3off", "a=kill9)"])
def test_what_does_not_fit_is_refused_with_its_term(text: str) -> None:
    with pytest.raises(SettingsError, match="is not a failpoint action"):
        parse(text)


def test_an_unset_failpoint_does_nothing() -> None:
    failpoint("nobody.set.this")


def test_raise_throws_the_named_error_of_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    arm(monkeypatch, "a=raise(LeaseLost);b=raise;c=raise(parse)")
    with pytest.raises(LeaseLost, match="failpoint a"):
        failpoint("a")
    for name in ("b", "c"):
        with pytest.raises(InjectedFault):
            failpoint(name)


def test_raise_throws_errors_of_python_too(monkeypatch: pytest.MonkeyPatch) -> None:
    arm(monkeypatch, "a=raise(RuntimeError)")
    with pytest.raises(RuntimeError, match="failpoint a"):
        failpoint("a")


def test_a_counted_term_gives_way_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    arm(monkeypatch, "a=2*off->1*raise")
    failpoint("a")
    failpoint("a")
    with pytest.raises(InjectedFault):
        failpoint("a")
    failpoint("a")


def test_threads_that_come_at_once_are_counted_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    arm(monkeypatch, "a=50*off->50*raise->off")
    with ThreadPoolExecutor(20) as pool:
        results = [pool.submit(failpoint, "a") for _ in range(200)]
    assert sum(result.exception() is not None for result in results) == 50


def test_a_forked_process_takes_the_failpoints_of_its_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints, "_POINTS", {})
    monkeypatch.setattr(failpoints, "_LOG", None)
    failpoints.configure({"PRISM_FAILPOINTS": "a=raise"})
    with pytest.raises(InjectedFault):
        failpoint("a")
    failpoints.configure({})
    failpoint("a")


def test_no_percent_at_all_never_strikes(monkeypatch: pytest.MonkeyPatch) -> None:
    arm(monkeypatch, "a=0%raise")
    for _ in range(100):
        failpoint("a")


def test_pause_waits_until_its_file_is_gone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    arm(monkeypatch, f"a=pause({tmp_path / 'gone'})")
    before = time.monotonic()
    failpoint("a")
    assert time.monotonic() - before < 1
    assert (tmp_path / "gone.reached").exists()


def test_every_failpoint_reached_is_logged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(failpoints, "_LOG", str(log))
    failpoint("first")
    failpoint("second")
    assert log.read_text().split() == ["first", "second"]
