"""Results of benchmarks: figures beside their goals, the files, and the pages that are made from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.bars import DARK, Bar, Panel, panels
from bench.harness import System, race
from bench.overview import load_results, standings, table_of_figures, table_of_results
from bench.report import COMMITTED, Grid, Report, Verdict
from bench.sizing import SIZES, TERABYTES, size, sizing_table, slopes
from bench.targets import ENTRIES, TARGETS, entry_of


def a_report(*verdicts: Verdict) -> Report:
    return Report(
        entry=ENTRIES[0].name,
        title="A race: two systems",
        verdicts=verdicts,
        grids=(Grid("Seconds", ("system", "s"), (("ours", "1.00"), ("peer", "3.00"))),),
        bars=(Bar("ours", 1.0, is_ours=True), Bar("peer", 3.0)),
        figures={"ours: s": 1.0},
    )


@pytest.mark.parametrize(
    ("value", "at_most", "reached"),
    [(2.0, False, True), (1.99, False, False), (2.0, True, True), (2.01, True, False)],
)
def test_a_figure_reaches_a_goal_at_its_border_and_on_one_side(value: float, at_most: bool, reached: bool) -> None:
    assert Verdict("P1", "a ratio", value, 2.0, at_most=at_most).reached is reached


def test_a_report_is_read_back_as_it_was_published(tmp_path: Path) -> None:
    verdict = Verdict("P1", "seconds, peer : ours", 3.0, 2.0)
    assert a_report(verdict).publish(tmp_path)
    (found,) = load_results(tmp_path)
    assert (found.verdicts, found.figures) == ((verdict,), {"ours: s": 1.0})
    assert "| P1 | seconds, peer : ours | 3 x | >= 2 x | reached |" in (tmp_path / f"{found.entry}.md").read_text()


def test_a_report_with_one_missed_goal_is_not_reached(tmp_path: Path) -> None:
    missed, met = Verdict("P1", "seconds", 1.0, 2.0), Verdict("P1", "core-seconds", 3.0, 2.0)
    assert not a_report(met, missed).publish(tmp_path)
    (standing,) = [one for one in standings(load_results(tmp_path)) if one.target.number == "P1"]
    assert standing.state == "not reached"


def test_a_required_target_without_a_result_fails() -> None:
    by_number = {one.target.number: one for one in standings([])}
    assert {number for number, one in by_number.items() if one.fails} == {
        target.number for target in TARGETS if target.is_required
    }
    assert {one.state for one in by_number.values()} == {"not measured"}


def test_every_target_has_a_line_in_both_tables() -> None:
    for table in (table_of_results([]), table_of_figures([])):
        for target in TARGETS:
            number = f"**{target.number}**" if target.is_required else target.number
            assert f"| {number} | {target.work} |" in table


def test_entries_are_modules_and_measure_targets_that_exist() -> None:
    numbers = {target.number for target in TARGETS}
    for entry in ENTRIES:
        assert (COMMITTED.parent / f"{entry.name}.py").exists(), entry.name
        assert set(entry.targets) <= numbers
    assert all(entry in ENTRIES for number in numbers for entry in entry_of(number))


def test_committed_results_are_small_and_belong_to_an_entry() -> None:
    names = {entry.name for entry in ENTRIES}
    for path in COMMITTED.iterdir():
        assert path.stat().st_size < 100_000, path.name
        if path.suffix == ".json":
            assert path.stem in names
            assert json.loads(path.read_text())["entry"] == path.stem


def test_bars_of_a_panel_share_a_scale() -> None:
    picture = panels("Two", (Panel("s", (Bar("ours", 1.0, is_ours=True), Bar("peer", 4.0))),), DARK)
    short, long = (float(part.split('"')[0]) for part in picture.split('width="')[1:])
    assert long == pytest.approx(4 * short, rel=0.01)
    assert DARK.accent in picture


def test_small_objects_cost_more_than_large_ones_and_more_bytes_cost_more() -> None:
    of = slopes([])
    costs = [size(of, 1, name).dollars for name in SIZES]
    assert costs == sorted(costs, reverse=True)
    assert size(of, 25, "1 MB").dollars > size(of, 5, "1 MB").dollars
    assert sizing_table([]).count("\n") == 2 + len(SIZES) * len(TERABYTES)


def test_a_race_of_different_work_counts_no_time() -> None:
    def a_system(name: str) -> System:
        return System(name, lambda _: None, lambda _: None, lambda _: {"rows": name})

    ways = [a_system("a"), a_system("b")]
    with pytest.raises(ValueError, match=r"b gave .*, a gave"):
        race(ways, 1)


def test_a_race_measures_core_seconds_of_each_round() -> None:
    def work(_number: int) -> None:
        assert sum(range(200_000))

    ways = [System(name, lambda _: None, work, lambda _: {}) for name in ("a", "b")]
    for timing in race(ways, rounds=2, warmups=0):
        assert len(timing.seconds) == len(timing.core_seconds) == 2
        assert min(timing.core_seconds) > 0
