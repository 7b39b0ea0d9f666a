"""Shared fixtures of fault tests: the fleet of the crash tests, and the cells of a run."""

from prism_assets_tests.crash.conftest import fleet, pytest_generate_tests

__all__ = ["fleet", "pytest_generate_tests"]
