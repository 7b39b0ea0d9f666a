"""Explores all states breadth first, so that the path to a fault is the shortest."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from prism_assets_tests.model.judging import faults, faults_of_step
from prism_assets_tests.model.recovery import Recovery
from prism_assets_tests.model.states import Rules, Size, State, first_state
from prism_assets_tests.model.steps import steps


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """Numbers of states and of played ends, kinds of steps, and the first fault with the shortest path to it."""

    states: int
    steps: int
    ends: int
    kinds: frozenset[str]
    fault: str | None
    way: tuple[str, ...]

    def __str__(self) -> str:
        found = f"{self.states} states, {self.steps} steps, {self.ends} different ends"
        return found if self.fault is None else "\n  ".join([f"{found}: {self.fault}", *self.way])


def explore(rules: Rules, size: Size) -> Exploration:
    """Visits every reachable state, and ends at the first fault."""
    with _without_collector():
        return _explore(rules, size)


@contextmanager
def _without_collector() -> Iterator[None]:
    """States hold no circles, and looking for some among a million of them takes longer than all the rest."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _explore(rules: Rules, size: Size) -> Exploration:
    recovery = Recovery(rules, size)
    first = first_state(size)
    came: dict[State, tuple[State, str] | None] = {first: None}
    waiting = deque([first])
    taken = 0
    kinds = set[str]()
    while waiting:
        state = waiting.popleft()
        for name, after in steps(state, rules, size):
            taken += 1
            kinds.add(_kind(name))
            fault = next(faults_of_step(state, name, after), None)
            if fault is None and after not in came:
                came[after] = (state, name)
                waiting.append(after)
                fault = next(faults(after), None) or recovery.fault(after)
            if fault is not None:
                way = (*_way(came, state), name)
                return _found(came, taken, recovery, kinds, fault, way)
    return _found(came, taken, recovery, kinds)


def _found(
    came: Mapping[State, object],
    taken: int,
    recovery: Recovery,
    kinds: Collection[str],
    fault: str | None = None,
    way: tuple[str, ...] = (),
) -> Exploration:
    return Exploration(states=len(came), steps=taken, ends=recovery.count, kinds=frozenset(kinds), fault=fault, way=way)


@cache
def _kind(name: str) -> str:
    return name.partition(":")[0]


def _way(came: dict[State, tuple[State, str] | None], state: State) -> tuple[str, ...]:
    names = []
    while found := came[state]:
        state, name = found
        names.append(name)
    return tuple(reversed(names))
