"""The error of the local stack: terminal, with one sentence on the remedy."""

from prism_assets.domain.errors import TerminalError


class StackError(TerminalError):
    """The local stack could not be started or stopped. The message names the remedy."""
