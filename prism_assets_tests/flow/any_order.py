"""Plays a state machine over the real stages: each example in a separate world."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from prism_assets_tests.metadata.worlds import a_world
from prism_assets_tests.reliability import Figures
from prism_assets_tests.world import World


@dataclass(frozen=True, kw_only=True)
class Played:
    """The class played, with its counts, and the number of worlds."""

    machine: Any
    worlds: int


def play(
    machine: type[RuleBasedStateMachine],
    services: Mapping[str, str],
    database_url: str,
    figures: Figures,
    *,
    examples: int,
    long: bool,
    world_settings: Callable[[int], Mapping[str, Any]] = lambda _number: {},
    **attributes: Any,
) -> Played:
    """Runs a state machine for `examples`, each in a separate world.

    `world_settings` gives the settings of the n-th world; `attributes` become those of the class, with `make_world`.
    Deaths are no fault of an object here, so no number of them gives an object up.
    """
    worlds = 0

    def make_world(opened: ExitStack) -> World:
        nonlocal worlds
        worlds += 1
        root = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        return opened.enter_context(a_world(services, database_url, root, max_attempts=1_000, **world_settings(worlds)))

    played = type(f"{machine.__name__}Here", (machine,), {"make_world": staticmethod(make_world), **attributes})
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
    return Played(machine=played, worlds=worlds)
