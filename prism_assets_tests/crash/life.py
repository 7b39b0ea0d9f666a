"""Plays a partition from its first object to the switch in one process: `python -m prism_assets_tests.crash.life`."""

from __future__ import annotations

from prism_assets.platform import build_context
from prism_assets.settings import load_settings
from prism_assets.stages.run import run_until_idle
from prism_assets_tests.builders import utc

NOON, AFTER = "2026-03-01T12:00", "2026-03-02T00:10"


def main() -> None:
    """Takes the calls of killed processes to the catalog for over: nobody wants to wait for that here."""
    context = build_context(load_settings())
    with context.database.begin() as connection:
        connection.exec_driver_sql("UPDATE prism_publication_notes SET expire_time = start_time")
    for now in (NOON, AFTER):
        instant = utc(now)
        for turn in run_until_idle(context, clock=lambda instant=instant: instant):  # type: ignore[misc]
            assert turn.errors == (), turn.errors


if __name__ == "__main__":
    main()
