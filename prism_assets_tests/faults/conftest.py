"""What tests of faults share: the fleet of the crash tests."""

from __future__ import annotations

from prism_assets_tests.crash.conftest import fleet

__all__ = ["fleet"]
