"""What tests of faults share: the fleet of the crash tests, and which cells a run plays."""

from prism_assets_tests.crash.conftest import fleet, pytest_generate_tests

__all__ = ["fleet", "pytest_generate_tests"]
