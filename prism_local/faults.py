"""The error of the local stack: terminal, with one sentence on the remedy."""

from prism_assets.domain.errors import TerminalError

INSTALL = "install the wheels again (docs/deploy.md), or run scripts/bootstrap in a clone"
"""The remedy for missing packages."""


class StackError(TerminalError):
    """The local stack could not be started or stopped. The message names the remedy."""
