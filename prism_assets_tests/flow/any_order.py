"""How a state machine over the real stages is played: each example in a world of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.reliability import Figures
from prism_assets_tests.world import World


def play(
    machine: type[RuleBasedStateMachine],
    services: Mapping[str, str],
    database_url: str,
    figures: Figures,
    *,
    examples: int,
    long: bool,
    more: Callable[[int], Mapping[str, Any]] = lambda _number: {},
    **parts: Any,
) -> tuple[Any, int]:
    """Plays so many examples, and `more` as settings of the world of each; the class that was played, and its worlds.

    It has `parts`, and a `make_world`. Deaths are no fault of an object here, however many: it is never given up.
    """
    worlds = 0

    def make_world(opened: ExitStack) -> World:
        nonlocal worlds
        worlds += 1
        root = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        return opened.enter_context(a_world(services, database_url, root, max_attempts=1_000, **more(worlds)))

    played = type(f"{machine.__name__}Here", (machine,), {"make_world": staticmethod(make_world), **parts})
    steps = 50 if long else 20
    run_state_machine_as_test(
        played,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=not long,
            database=None,
            phases=[Phase.generate, Phase.shrink] if long else [Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert worlds >= examples
    figures.note("State machine", runs=worlds, steps=worlds * steps)
    return played, worlds
