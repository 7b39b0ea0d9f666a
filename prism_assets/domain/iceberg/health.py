"""The health of an Iceberg table from 0 to 100: the worst of several measures of planning cost and delay.

Each measure has a limit. Up to half of it scores 100, the limit itself 67, twice the limit 0. Below 70 the measure
names a remedy.
"""

from __future__ import annotations

from dataclasses import dataclass

from prism_assets.domain.iceberg.snapshots import MANY_SNAPSHOTS

HEALTHY = 70
_LARGE_METADATA = 2 << 20


@dataclass(frozen=True, kw_only=True)
class IcebergFigures:
    """Measured figures of a table in bytes and seconds. Small objects count if their day is closed and their merge is
    late.
    """

    closed_small_bytes: int
    all_bytes: int
    manifests: int
    days: int
    snapshots: int
    metadata_bytes: int
    seconds_behind: float
    commit_seconds: float
    foreign_snapshots: int


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One measurement, its limit, and the remedy above it."""

    name: str
    number: float
    limit: float
    unit: str
    remedy: str

    @property
    def score(self) -> int:
        """100 up to half the limit, 67 at the limit, 0 at twice the limit."""
        beyond = self.number / self.limit - 0.5
        return round(100 * min(1.0, max(0.0, 1 - beyond / 1.5)))

    def __str__(self) -> str:
        measurement = f"{self.name} {self.number:.4g} {self.unit}".rstrip()
        return measurement if self.score >= HEALTHY else f"{measurement} (at most {self.limit:g}): {self.remedy}"


@dataclass(frozen=True, kw_only=True)
class Health:
    """All measures of a table, the worst first."""

    measures: tuple[Measure, ...]

    @property
    def score(self) -> int:
        """The worst score."""
        return self.measures[0].score

    @property
    def complaints(self) -> tuple[str, ...]:
        """A sentence for each unhealthy measure, with its remedy."""
        return tuple(str(measure) for measure in self.measures if measure.score < HEALTHY)


def health_of(figures: IcebergFigures) -> Health:
    """Scores the figures of a table."""
    measures = [
        Measure(
            name="bytes of closed days in small objects",
            number=100 * figures.closed_small_bytes / figures.all_bytes if figures.all_bytes else 0,
            limit=25,
            unit="%",
            remedy="merges are behind or parked: see `prism status`",
        ),
        Measure(
            name="manifests per day",
            number=figures.manifests / figures.days if figures.days else 0,
            limit=16,
            unit="",
            remedy="`prism iceberg optimize` joins them",
        ),
        Measure(
            name="snapshots",
            number=figures.snapshots,
            limit=MANY_SNAPSHOTS,
            unit="",
            remedy="raise `commit_seconds` or lower `keep_hours` in the table file",
        ),
        Measure(
            name="metadata file",
            number=figures.metadata_bytes / (1 << 20),
            limit=_LARGE_METADATA / (1 << 20),
            unit="MiB",
            remedy="raise `commit_seconds` or lower `keep_hours` in the table file",
        ),
        Measure(
            name="behind",
            number=figures.seconds_behind,
            limit=2 * figures.commit_seconds,
            unit="s",
            remedy="look at the last runs of `iceberg_work`, or run `prism iceberg publish`",
        ),
        Measure(
            name="snapshots of others in 7 days",
            number=figures.foreign_snapshots,
            limit=0.5,
            unit="",
            remedy="see `prism iceberg history`; only the publisher's role may commit",
        ),
    ]
    return Health(measures=tuple(sorted(measures, key=lambda measure: measure.score)))
