from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prism_assets import platform
from prism_assets.metadata.database import Database
from prism_assets_tests.command.prism import Prism
from prism_assets_tests.metadata.worlds import world as world
from prism_assets_tests.world import World


@pytest.fixture
def prism(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Prism]:
    """The command line in this process, with the settings of the world in the environment."""
    opened: list[Database] = []

    def open_database(*given: Any) -> Database:
        opened.append(Database(*given))
        return opened[-1]

    monkeypatch.setattr(platform, "Database", open_database)
    monkeypatch.chdir(tmp_path)
    yield Prism(world, monkeypatch, capsys)
    for database in opened:
        database.dispose()
