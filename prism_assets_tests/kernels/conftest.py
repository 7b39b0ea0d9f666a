from pathlib import Path

import pytest

from prism_assets_tests.kernels.builders import Lake


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)
