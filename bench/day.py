"""Simulates a day of merges with the planner: 1,440 steps of a minute, four shapes of arrivals.

Nothing is read or written: a merge is the plan that the stage would execute, and its object has the planned bytes. The
peer extends the last object at every step until that object is full.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.bars import Bar
from bench.report import Grid, Report, Verdict
from prism_assets.domain.files.data_file import MergedRange, SmallObject
from prism_assets.domain.merges.plan import plan_merge
from prism_assets.domain.tables.options import MergePolicy
from prism_assets_tests.builders import a_range, a_small_object

STEPS = 1_440
_SHRINKAGE = 0.8
_MEGABYTE = 1e6
_POLICY = MergePolicy()
Arrivals = Callable[[random.Random, int], list[int]]
"""The bytes of the small objects of a step."""


def even(rng: random.Random, _step: int) -> list[int]:
    return [rng.randrange(250_000, 350_000) for _ in range(8)]


def evening(rng: random.Random, step: int) -> list[int]:
    """A wave over the day: eight times as many objects in the evening as in the early morning."""
    wave = 1 + math.sin((step / STEPS - 0.55) * 2 * math.pi)
    return [rng.randrange(200_000, 400_000) for _ in range(1 + round(7 * wave))]


def bursts(rng: random.Random, step: int) -> list[int]:
    """Everything of an hour at once."""
    return [rng.randrange(400_000, 1_200_000) for _ in range(300)] if step % 60 == 17 else []


def mixed(rng: random.Random, _step: int) -> list[int]:
    """Sizes from kilobytes to 20 MB."""
    return [min(20_000_000, round(rng.lognormvariate(11, 2))) for _ in range(8)]


SHAPES: dict[str, Arrivals] = {"even": even, "evening": evening, "bursts": bursts, "mixed": mixed}


@dataclass
class Day:
    """The merged objects of a day and all bytes written to make them."""

    sizes: list[int]
    written: int = 0

    @property
    def bytes_per_byte(self) -> float:
        return self.written / sum(self.sizes)

    @property
    def spread(self) -> float:
        """Returns the coefficient of variation of all objects but the last."""
        full = self.sizes[:-1]
        return statistics.pstdev(full) / statistics.mean(full)


def with_planner(arrivals: Arrivals, seed: int) -> Day:
    """Plans at every step of the open day, and once after its close until nothing is left."""
    rng, day = random.Random(seed), Day([])
    chain, unmerged, number = list[MergedRange](), list[SmallObject](), 0
    for step in range(STEPS + 1):
        if step < STEPS:
            for size in arrivals(rng, step):
                number += 1
                unmerged.append(a_small_object(number, content_length=size))
        _merge(day, chain, unmerged, is_open=step < STEPS)
    while unmerged:
        _merge(day, chain, unmerged, is_open=False)
    day.sizes = [item.content_length for item in chain]
    return day


def _merge(day: Day, chain: list[MergedRange], unmerged: list[SmallObject], *, is_open: bool) -> None:
    plan = plan_merge(
        policy=_POLICY,
        is_open=is_open,
        chain=chain,
        unmerged=unmerged[: _POLICY.max_objects],
        more=len(unmerged) > _POLICY.max_objects,
        shrinkage=_SHRINKAGE,
    )
    for planned in plan.ranges:
        if planned.extends is not None:
            chain.remove(planned.extends)
        before = planned.extends.content_length if planned.extends else 0
        size = before + round(_SHRINKAGE * sum(item.content_length for item in planned.objects))
        chain.append(a_range(planned.lower_bound, planned.upper_bound, size))
        day.written += size
    if plan.ranges:
        end = chain[-1].upper_bound
        unmerged[:] = [item for item in unmerged if item.object_id > end]


def with_extension(arrivals: Arrivals, seed: int) -> Day:
    """The peer: all new objects go into the last object at every step, until it is full."""
    rng, day = random.Random(seed), Day([])
    for step in range(STEPS):
        new = round(_SHRINKAGE * sum(arrivals(rng, step)))
        if not new:
            continue
        if day.sizes and day.sizes[-1] < _POLICY.target_bytes:
            day.sizes[-1] += new
        else:
            day.sizes.append(new)
        day.written += day.sizes[-1]
    return day


def _row(shape: str, name: str, day: Day) -> tuple[str, ...]:
    full = [size / _MEGABYTE for size in day.sizes[:-1]]
    return (
        shape,
        name,
        f"{sum(day.sizes) / 1e9:.1f}",
        str(len(day.sizes)),
        f"{min(full):.0f} to {max(full):.0f}",
        f"{day.spread:.2f}",
        f"{day.bytes_per_byte:.2f}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench day", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows, bars, verdicts = list[tuple[str, ...]](), list[Bar](), list[Verdict]()
    figures = dict[str, float]()
    for shape, arrivals in SHAPES.items():
        ours, peer = with_planner(arrivals, options.seed), with_extension(arrivals, options.seed)
        rows += [_row(shape, "planner", ours), _row(shape, "extend at every step", peer)]
        verdicts += _verdicts(shape, ours)
        bars += [
            Bar(f"planner, {shape}", ours.bytes_per_byte, True),
            Bar(f"extend at every step, {shape}", peer.bytes_per_byte),
        ]
        figures[f"{shape}: bytes written per final byte"] = round(ours.bytes_per_byte, 3)
    heads = ("arrivals", "policy", "GB of the day", "objects", "MB but the last", "variation", "bytes written per byte")
    return (
        0
        if Report(
            entry="day",
            title="Day: bytes written by merges of an open day",
            verdicts=tuple(verdicts),
            grids=(Grid("A day of 1,440 steps", heads, tuple(rows)),),
            notes=(
                "Simulated with the planner of the stage; a merge shrinks its inputs to 80 %. Rows that arrive after "
                "the close are left out: they would rewrite the last object.",
            ),
            bars=tuple(bars),
            bars_label="bytes written per byte of the merged day; shorter is better",
            figures=figures,
        ).publish()
        else 1
    )


def _verdicts(shape: str, day: Day) -> Sequence[Verdict]:
    full = [size / _MEGABYTE for size in day.sizes[:-1]]
    return (
        Verdict("P6", f"bytes written per final byte, {shape}", day.bytes_per_byte, 2.0, "", at_most=True),
        Verdict("P6", f"smallest object but the last, {shape}", min(full), 64, "MB"),
        Verdict("P6", f"largest object, {shape}", max(full), 180, "MB", at_most=True),
        Verdict("P6", f"coefficient of variation, {shape}", day.spread, 0.15, "", at_most=True),
    )


if __name__ == "__main__":
    sys.exit(main())
