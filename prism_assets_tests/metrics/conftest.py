"""`prism` in this process."""

from __future__ import annotations

from prism_assets_tests.command.conftest import prism

__all__ = ["prism"]
