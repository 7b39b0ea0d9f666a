"""`prism doctor` on the terminal and as JSON: exit status 0 clean, 1 findings, 2 wrong use."""

from __future__ import annotations

from prism_assets.kernels.compiled import loaded_kernel
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.command.prism import Prism

NOON = "2026-03-01T12:00"


def told(out: str) -> list[str]:
    """The lines of doctor, but for the one that it has before the last where the kernel is left out."""
    lines = out.splitlines()
    if loaded_kernel().why_not:
        assert lines.pop(-2).startswith("lines are read without the compiled kernel")
    return lines


def a_day(prism: Prism) -> str:
    """Returns an open day of one object, and the key of the small object."""
    prism.world.apply(a_table())
    prism.world.drop(some_rows(3, utc(NOON)))
    prism.world.stream(NOON)
    prism.world.catalog(NOON)
    return next(item.key for item in prism.world.context.stores.list("lake", "") if "/live/" in item.key)


def test_a_sound_lake_is_told_in_one_line_with_status_0(prism: Prism) -> None:
    a_day(prism)
    (line,) = told(prism.ok("doctor").out)
    assert line.startswith("nothing is wrong: 1 table, 1 partition in the catalog, 1 object looked at in ")
    deep = prism.ok("doctor", "--deep", "--json").json
    assert (deep["clean"], deep["findings"], deep["unseen"], deep["deep"]) == (True, [], [], True)
    assert prism.ok("doctor", "--executors", "--json").json["executors_without_kernel"] == {}


def test_a_finding_is_told_with_invariant_table_day_facts_and_what_to_do_and_status_1(prism: Prism) -> None:
    key = a_day(prism)
    prism.world.context.stores.delete("lake", [key])
    done = prism("doctor")
    assert (done.status, done.err) == (1, "")
    first, last = told(done.out)
    assert first == (
        f"I4 log.events 2026-03-01: the small object {key} is missing. "
        "Run `prism repair --table log.events --date 2026-03-01`"
    )
    assert last.startswith("1 finding: 1 table")
    done = prism("doctor", "--json")
    assert (done.status, done.json["clean"]) == (1, False)
    (finding,) = done.json["findings"]
    assert (finding["invariant"], finding["kind"], finding["table"]) == ("I4", "small_object", "log.events")


def test_what_was_not_looked_at_is_told_with_status_1(prism: Prism) -> None:
    a_day(prism)
    prism.set(glue_endpoint="http://127.0.0.1:9")
    done = prism("doctor")
    assert done.status == 1
    assert done.out.startswith("not looked at: log.events: Glue at http")


def test_wrong_use_has_status_2(prism: Prism) -> None:
    a_day(prism)
    done = prism("doctor", "--table", "log.none")
    assert (done.status, done.out) == (2, "")
    assert "there is no table log.none" in done.err
