"""The restore of PostgreSQL from an older dump, as docs/backup.md describes it, at any moment in the life of a table.

Between two steps ten hours pass, and garbage collection takes all it may after each. The lease of readers is
a day, so a restore that loses two steps loses less than a lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pydantic import SecretStr

from prism_assets.domain.findings import Finding
from prism_assets.platform import build_context
from prism_assets.stages.doctor.run import run_doctor
from prism_assets.stages.erase.run import continue_erasures, run_erase
from prism_assets.stages.gc.run import run_gc
from prism_assets.stages.repair.run import run_repair
from prism_assets_tests.builders import a_table, some_rows, utc
from prism_assets_tests.dumps import dump, restore
from prism_assets_tests.postgres import PostgresServer
from prism_assets_tests.stages.aging import database_ages, gc, hours_pass
from prism_assets_tests.stages.engines import rest_is_over
from prism_assets_tests.world import World

TABLE = "log.events"
HOURS = 10.0
SETTINGS = {"gc_reader_lease_hours": 24, "gc_age_hours": 1, "gc_max_fraction": 1.0, "quarantine_days": 3_650}
NOON, NIGHT, LATE, NEXT, AFTER = (
    "2026-03-01T12:00",
    "2026-03-02T01:00",
    "2026-03-02T03:00",
    "2026-03-02T12:00",
    "2026-03-03T01:00",
)


class Life:
    """A table from its first object to days that are merged, erased and cleaned, with the rows that belong to it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rows: set[int] = set()
        self.erased: set[int] = set()
        self.now = utc(NOON)
        world.apply(a_table(merge="{interval: 0}", iceberg="true"))

    @property
    def steps(self) -> Sequence[Callable[[], object]]:
        """The steps in their order. Each but the first may be lost by a restore."""
        return (
            self.objects_arrive,
            self.more_objects_arrive,
            self.the_day_closes,
            self.late_rows_arrive,
            self.a_row_is_erased,
            self.the_erasure_goes_on,
            self.the_next_day_begins,
            self.everything_is_merged,
        )

    def play(self, first: int, last: int) -> None:
        """Takes the steps from `first` to before `last`, with ten hours and a garbage collection after each."""
        for step in self.steps[first:last]:
            step()
            hours_pass(self.world, HOURS)
            gc(self.world)

    @property
    def wanted(self) -> list[int]:
        """The rows that readers must see."""
        return sorted(self.rows - self.erased)

    def arrive(self, count: int, when: str) -> None:
        """Puts an object with rows of a time into the stream."""
        rows = some_rows(count, utc(when))
        self.rows |= {row["id"] for row in rows}
        self.world.drop(rows)

    def everything_due(self, now: str) -> None:
        """Runs all stages twice, as Dagster does in some minutes."""
        self.now = max(self.now, utc(now))
        rest_is_over(self.world)
        for _ in range(2):
            assert self.world.stream(now).errors == ()
            assert self.world.merge(now, everything=True).errors == ()
            self.world.catalog(now)
            self.world.iceberg(now)

    def objects_arrive(self) -> None:
        self.arrive(30, NOON)
        assert self.world.stream(NOON).errors == ()
        self.world.catalog(NOON)

    def more_objects_arrive(self) -> None:
        self.arrive(20, NOON)
        self.world.drop([{"time": "never"}])
        assert self.world.stream(NOON).errors == ()
        self.world.catalog(NOON)
        self.world.iceberg(NOON)

    def the_day_closes(self) -> None:
        self.everything_due(NIGHT)

    def late_rows_arrive(self) -> None:
        self.arrive(3, NOON)
        self.everything_due(LATE)

    def a_row_is_erased(self) -> None:
        self.erase(min(self.rows))

    def erase(self, gone: int) -> None:
        """Erases a row, or repeats the erasure."""
        self.erased.add(gone)
        assert run_erase(self.world.context, TABLE, f"id = {gone}", rows=1).errors == ()
        self.world.catalog(f"{self.now:%Y-%m-%dT%H:%M}")

    def the_erasure_goes_on(self) -> None:
        for _ in range(2):
            self.world.catalog(LATE)
            future = datetime.now(timezone.utc) + timedelta(days=3)
            continue_erasures(self.world.context, now=future, forced=True)

    def the_next_day_begins(self) -> None:
        self.arrive(20, NEXT)
        self.arrive(2, NOON)
        self.everything_due(NEXT)

    def everything_is_merged(self) -> None:
        self.everything_due(AFTER)


class Drill:
    """One restore: a dump at a moment, lost steps, and the way back."""

    def __init__(self, life: Life, postgres: PostgresServer, folder: Path) -> None:
        self.life = life
        self._postgres = postgres
        self._file = folder / "prism.dump"
        self._urls: list[str] = []

    def play(self, moment: int, lost: int) -> None:
        """Dumps before the step `moment`, takes `lost` steps, and restores the dump into a new database."""
        self.life.play(0, moment)
        dump(self.life.world.settings.database_url.get_secret_value(), self._file)
        self.life.play(moment, moment + lost)
        self.life.world.close()
        self._urls.append(restore(self._postgres, self._file))
        settings = self.life.world.settings.model_copy(update={"database_url": SecretStr(self._urls[-1])})
        self.life.world = replace(self.life.world, settings=settings, context=build_context(settings))
        database_ages(self.life.world, lost * HOURS)

    def told(self) -> Sequence[Finding]:
        """What `prism doctor` finds."""
        return run_doctor(self.life.world.context, deep=True).findings

    def start_again(self) -> None:
        """Takes the steps of the page: repeats erasures, makes Iceberg tables again that doctor names, removes uploads,
        and runs everything due.
        """
        world = self.life.world
        world.apply()
        if any(finding.kind == "missing_erasure" for finding in self.told()):
            for gone in self.life.erased:
                self.life.erase(gone)
        if any(finding.kind == "missing_iceberg_files" for finding in self.told()):
            world.iceberg(AFTER, names=[TABLE], register=True, anew=True)
        assert run_repair(world.context).errors == ()
        self.life.everything_due(AFTER)
        assert run_gc(world.context).errors == ()

    def close(self) -> None:
        """Drops the restored databases."""
        self.life.world.close()
        for url in self._urls:
            self._postgres.drop_database(url)
