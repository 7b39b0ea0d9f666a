"""The compiled kernel as a requirement: images set `PRISM_KERNEL=required`, and a process without the kernel ends."""

from __future__ import annotations

import os

from prism_assets.domain.errors import WrongUse
from prism_assets.domain.names import must_be_one_of

SWITCH = "PRISM_KERNEL"
"""The environment variable: `off` leaves the kernel out, `required` ends processes without it."""
OFF, REQUIRED = "off", "required"


def check_kernel() -> None:
    """Raises WrongUse if the kernel is required and cannot be loaded, or for another word than `off` and `required`.

    Without the requirement, nothing is imported.
    """
    word = os.environ.get(SWITCH, "").lower()
    if word in ("", OFF):
        return
    if word != REQUIRED:
        raise WrongUse(f"{SWITCH} {must_be_one_of(word, (OFF, REQUIRED))}")
    from prism_assets.kernels.compiled import loaded_kernel

    if why_not := loaded_kernel().why_not:
        raise WrongUse(f"{why_not}, and {SWITCH} is {REQUIRED}: install the wheel of this version, or unset {SWITCH}")
