"""The recovery of a state after all processes die, without another fault: no person acts, and two runs follow."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from prism_assets.domain.days.partitions import current_publication, wanted_publication
from prism_assets_tests.model import steps
from prism_assets_tests.model.judging import visible
from prism_assets_tests.model.states import Content, Rules, Size, State

_UNTIL_REST = 2
_ENOUGH = 100


def durable(state: State, rules: Rules) -> State:
    """Returns the state after the death of all processes: their claims, notes and calls remain. One new process of each
    kind exists.
    """
    while run := next(filter(None, state.runs), None):
        state = steps.without_run(state, run, rules)
    return state._replace(workers=(None,), mergers=(None,), runs=(None,))


@dataclass
class Recovery:
    """Plays the end of every state, each different one once."""

    rules: Rules
    size: Size
    _judged: dict[State, str | None] = field(default_factory=dict)
    _turns: dict[tuple[State, bool], State] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many different ends were played."""
        return len(self._judged)

    def fault(self, state: State) -> str | None:
        """Returns the fault that remains two runs after all processes died in this state, or None."""
        left = durable(state, self.rules)
        if left not in self._judged:
            self._judged[left] = next(self._faults(left), None)
        return self._judged[left]

    def _faults(self, left: State) -> Iterator[str]:
        """Yields the faults if calls take effect before the first run, after it, or never."""
        for fates in itertools.product(("before", "behind", "never"), repeat=len(left.calls)):
            state = left
            late: list[Content] = []
            for call, fate in zip(left.calls, fates, strict=True):
                if fate == "behind":
                    late.append(call.content)
                else:
                    state = self._gone(state, call.content, lands=fate == "before")
            state = self._turn(state)
            for content in late:
                state = self._gone(state, content, lands=True)
            yield from self._faults_at_rest(self._turns_of(state))

    def _faults_at_rest(self, state: State) -> Iterator[str]:
        everything = tuple(range(self.size.objects))
        if visible(state) != everything:
            yield f"I1: at rest a reader sees {visible(state)} instead of {everything}"
        over = self._turns_of(state, day_over=True)
        partition = over.partition
        if visible(over) != everything:
            yield f"I1: at rest, its day over, a reader sees {visible(over)} instead of {everything}"
        if partition is None or not partition.switched:
            yield "I10: two runs after its day the partition is not switched"
        elif current_publication(partition) != wanted_publication(partition):
            yield "I10: two runs after its day it is not recorded that the catalog shows what it should"
        elif over.shown is None or over.shown.publication != wanted_publication(partition):
            yield "I10: two runs after its day the catalog shows something else than is recorded"
        if self._turn(over, day_over=True) != over:
            yield "I7: a run that has nothing to do changes something"

    def _turns_of(self, state: State, *, day_over: bool = False) -> State:
        for _ in range(_UNTIL_REST):
            state = self._turn(state, day_over=day_over)
        return state

    def _turn(self, state: State, *, day_over: bool = False) -> State:
        """Runs `prism run` once after all leases are over: stream, merge, and catalog if a sensor would request it."""
        day_over = day_over or (state.partition is not None and state.partition.closing_batch_id is not None)
        if (state, day_over) not in self._turns:
            self._turns[state, day_over] = self._catalog(self._merge(self._stream(state)), day_over)
        return self._turns[state, day_over]

    def _stream(self, state: State) -> State:
        for batch, condition in enumerate(state.batches, start=1):
            if condition in ("running", "starting"):
                state = steps.declared_dead(state, batch)
        unbounded = replace(self.size, batches=_ENOUGH)
        while any(item.state == "pending" for item in state.objects):
            *_, (_, state) = steps.start_batch(state, self.rules, unbounded)
            while worker := next(filter(None, state.workers), None):
                _, state = next(steps.stream(state, worker, self.rules))
        return state

    def _merge(self, state: State) -> State:
        if state.job_runs:
            state = steps.lease_over(state)
        while state.job_waits:
            _, state = next(steps.claim_merge(state, self.rules))
            while merger := next(filter(None, state.mergers), None):
                _, state = next(steps.merge(state, merger, self.rules, self.size))
        return state

    def _catalog(self, state: State, day_over: bool) -> State:
        if not steps.has_catalog_work(state, self.rules, day_over=day_over):
            return state
        _, state = next(steps.lock_table(state, self.rules))
        before = ["catalog.switch", *(["catalog.mark"] if day_over else []), "catalog.close", "catalog.begin"]
        for name in before:
            for at_work in filter(None, state.runs):
                state = dict(steps.catalog(state, at_work, self.rules, self.size)).get(name, state)
        while run := next(filter(None, state.runs), None):
            _, state = next(steps.catalog(state, run, self.rules, self.size))
        return state

    def _gone(self, state: State, content: Content, *, lands: bool) -> State:
        """Returns the state after a call took effect or was lost."""
        number = [call.content for call in state.calls].index(content)
        return list(steps.late_calls(state, self.rules))[2 * number + (not lands)][1]
