"""The compiled kernel as a requirement: images set `PRISM_KERNEL=required`, and a process without the kernel ends."""

from __future__ import annotations

import os

from prism_assets.domain.errors import WrongUse

SWITCH = "PRISM_KERNEL"
"""The environment variable: `off` leaves the kernel out, `required` ends processes without it."""
REQUIRED = "required"


def check_kernel() -> None:
    """Raises WrongUse if the kernel is required and cannot be loaded. Without the requirement, nothing is imported."""
    if os.environ.get(SWITCH, "").lower() != REQUIRED:
        return
    from prism_assets.kernels.compiled import loaded_kernel

    if why_not := loaded_kernel().why_not:
        raise WrongUse(f"{why_not}, and {SWITCH} is {REQUIRED}: install the wheel of this version, or unset {SWITCH}")
