"""Tests of prism_assets. They mirror its packages; `flow` runs whole lives of partitions end to end."""

import gc
import pkgutil
import sys

# Libraries keep hundreds of thousands of objects to the end, and each collection of cycles looks through many of them.
gc.set_threshold(20_000, 20, 20)

if "pytest" in sys.modules:  # a failed assert of a shared module tells its values, too
    import pytest

    pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))
