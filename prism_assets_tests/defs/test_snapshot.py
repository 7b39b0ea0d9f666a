"""All definitions as they were when somebody last looked at them."""

from __future__ import annotations

from prism_assets_tests.defs.snapshot import SNAPSHOT, load


def test_the_definitions_are_those_of_the_snapshot() -> None:
    done = load()
    assert done.returncode == 0, done.stderr
    assert done.stdout == SNAPSHOT.read_text(), "if this is meant: python -m prism_assets_tests.defs.snapshot"
