"""What tests of faults share: the fleet of the crash tests, and which cells a run plays."""

from __future__ import annotations

import pytest

from prism_assets_tests.crash.conftest import fleet

__all__ = ["fleet"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A module says by `cells(long=…)` and `cases(long=…)` which ones there are."""
    for name, of in (("cell", "cells"), ("case", "cases")):
        if name in metafunc.fixturenames:
            chosen = getattr(metafunc.module, of)(long=metafunc.config.getoption("--long"))
            metafunc.parametrize(name, chosen, ids=_name)


def _name(cell: object) -> str:
    return " at ".join(filter(None, cell)) if isinstance(cell, tuple) else str(cell)
