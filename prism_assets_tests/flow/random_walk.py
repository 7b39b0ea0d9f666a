"""A random walk over steps that replace objects of a table, judged by a model after each step.

The seed determines the walk: the same seed takes the same steps.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone

from prism_assets.stages.erase.run import continue_erasures
from prism_assets_tests.stages.aging import gc, hours_pass
from prism_assets_tests.world import World

NIGHT = 80.0
Step = Callable[[], object]


class RandomWalk(ABC):
    """One walk. An error in a step or its judgement shows `trace`, the steps taken."""

    def __init__(self, world: World, seed: int, begin: datetime) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.trace: list[str] = [f"seed {seed}"]
        self.done: Counter[str] = Counter()
        self.now = begin
        self.has_iceberg = False

    def play(self, steps: int) -> None:
        """Takes so many steps, and comes to rest."""
        weights = self.weights()
        for step in self.random.choices(list(weights), list(weights.values()), k=steps):
            self.take(step)
        self.come_to_rest()

    def take(self, step: Step) -> None:
        """Takes one step, and judges the readers' view after the step."""
        name = step.__name__
        self.trace.append(name)
        self.done[name] += 1
        self.now += timedelta(minutes=1)
        try:
            step()
            self.judge()
        except Exception as error:
            error.add_note(f"after {', '.join(self.trace)}")
            raise

    @abstractmethod
    def weights(self) -> Mapping[Step, int]:
        """Returns the steps, each with the weight of its choice."""

    @abstractmethod
    def judge(self) -> None:
        """Compares the readers' view with the model."""

    @abstractmethod
    def come_to_rest(self) -> None:
        """Completes all work, and judges the result."""

    @property
    def clock(self) -> str:
        return f"{self.now:%Y-%m-%dT%H:%M}"

    def go_on_erasing(self) -> None:
        is_late = self.random.random() < 0.5
        if is_late:
            hours_pass(self.world, NIGHT)
        self.continue_erasures(is_late=is_late)

    def continue_erasures(self, *, is_late: bool) -> None:
        now = datetime.now(timezone.utc) + timedelta(days=4) if is_late else None
        report = continue_erasures(self.world.context, now=now, forced=True)
        assert [problem for problem in report.problems if not problem.transient] == []

    def collect_garbage(self) -> None:
        hours_pass(self.world, self.random.choice((1.0, 5.0, NIGHT)))
        gc(self.world)

    def commit_to_iceberg(self) -> None:
        self.world.iceberg(self.clock)
        self.has_iceberg = True
