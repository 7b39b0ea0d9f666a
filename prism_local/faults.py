"""The error of the local stack: terminal, with one sentence that says what to do."""

from prism_assets.domain.errors import TerminalError


class StackError(TerminalError):
    """The local stack could not be started or stopped; the message says what to do about it."""
