"""Simulates the fold policy on invented traffic: its write costs, and the age of changes when readers see them.

Each record has three changes: one at its start, 90 % of the others within 10 minutes, the rest within a window of 3
hours. Folds run every 5 minutes. The output gives rows written per record, for records and for waiting changes, and the
age of changes at publication.

    scripts/bench join_policy [--per-hour 10000] [--dirty 0.1] [--stale 3600]
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from prism_assets.domain.records.fold_plan import RecordFile, files_to_write
from prism_assets.domain.records.joins import PublishPolicy

WINDOW, SOON, HOURS = 3 * 3_600, 600, 12
COHORT = 900
Changes = list[tuple[float, int]]
"""Arrival and record of each change."""


@dataclass
class Simulation:
    """Everything written and published so far."""

    policy: PublishPolicy
    published: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    waiting: dict[int, Changes] = field(default_factory=lambda: defaultdict(list))
    rows: int = 0
    waiting_rows: int = 0
    ages: list[float] = field(default_factory=list)

    def fold(self, now: float, came: dict[int, Changes]) -> None:
        """Folds: due record files are written with all of their changes; the changes of others wait."""
        for cohort, changes in came.items():
            self.waiting[cohort] += changes
        cohorts = sorted(cohort for cohort, changes in self.waiting.items() if changes)
        files = [
            RecordFile(
                rows=len(self.published[cohort]),
                touched=len({record for _, record in self.waiting[cohort]}),
                waited_seconds=now - min(time for time, _ in self.waiting[cohort]),
            )
            for cohort in cohorts
        ]
        due = files_to_write(self.policy, files)
        for place, cohort in enumerate(cohorts):
            if place in due:
                changes = self.waiting.pop(cohort)
                self.published[cohort] |= {record for _, record in changes}
                self.rows += len(self.published[cohort])
                self.ages += [now - time for time, _ in changes]
            else:
                self.waiting_rows += len(came.get(cohort, []))


def traffic(per_hour: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Returns the start of each record, and the times of its three changes."""
    chance = np.random.default_rng(1)
    births = np.sort(chance.uniform(0, HOURS * 3_600, per_hour * HOURS))
    spans = np.where(chance.random((len(births), 2)) < 0.9, SOON, WINDOW)
    later = births[:, None] + chance.random((len(births), 2)) * spans
    return births, np.column_stack([births, later])


def simulate(policy: PublishPolicy, per_hour: int) -> Simulation:
    """Runs until the last record is final."""
    births, times = traffic(per_hour)
    cohorts = (births // COHORT).astype(int)
    order = np.argsort(times, axis=None)
    at, records = times.reshape(-1)[order], order // times.shape[1]
    simulation, start = Simulation(policy), 0
    end = HOURS * 3_600 + WINDOW + policy.stale_seconds + 2 * policy.every_seconds
    for now in range(policy.every_seconds, end, policy.every_seconds):
        stop = int(np.searchsorted(at, now))
        came: dict[int, Changes] = defaultdict(list)
        for time, record in zip(at[start:stop].tolist(), records[start:stop].tolist(), strict=True):
            came[int(cohorts[record])].append((time, record))
        simulation.fold(float(now), came)
        start = stop
    return simulation


@dataclass(frozen=True)
class Figures:
    """Rows written per record, for records and for waiting changes, and percentiles of ages in minutes."""

    rows: float
    waiting_rows: float
    ages: dict[str, float]


def figures(policy: PublishPolicy, per_hour: int) -> Figures:
    """Returns the costs of a policy with `per_hour` records in one bucket."""
    found = simulate(policy, per_hour)
    records = per_hour * HOURS
    names, ages = ("p50", "p90", "p99", "most"), np.percentile(found.ages, [50, 90, 99, 100]) / 60
    return Figures(found.rows / records, found.waiting_rows / records, dict(zip(names, ages.tolist(), strict=True)))


def main() -> None:
    """Prints a line for the given policy, or for several."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-hour", type=int, default=10_000, help="records of one bucket that are born in an hour")
    parser.add_argument("--every", type=int, default=300)
    parser.add_argument("--dirty", type=float)
    parser.add_argument("--stale", type=int)
    options = parser.parse_args()
    policies = [(options.dirty or 0.1, options.stale or 3_600)] if options.dirty or options.stale else SOME
    print(f"{'dirty':>6} {'stale':>6} {'rows per record':>16} {'waiting rows':>13}   age when readable, minutes")
    for dirty, stale in policies:
        policy = PublishPolicy(every_seconds=options.every, dirty=dirty, stale_seconds=stale)
        found = figures(policy, options.per_hour)
        ages = ", ".join(f"{name} {value:.0f}" for name, value in found.ages.items())
        print(f"{dirty:>6} {stale // 60:>5}m {found.rows:>16.2f} {found.waiting_rows:>13.2f}   {ages}")


SOME = [(1e-9, 300), (0.05, 3_600), (0.1, 3_600), (0.2, 7_200), (0.3, 3_600)]
"""Dirty shares and stale seconds. The first policy writes every touched file."""

if __name__ == "__main__":
    main()
