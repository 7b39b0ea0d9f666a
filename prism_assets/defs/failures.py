"""The one place where errors of prism_assets become what Dagster understands: a retry, or a failure for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import Failure, RetryRequested

from prism_assets.domain.errors import PrismError, TransientError

MAX_RETRIES = 3
WAIT_SECONDS = 10.0


@contextmanager
def mapped() -> Iterator[None]:
    """Turns transient errors into a retry of the step and all others of the tree into a failure without one.

    Nothing is lost by either: what was committed stays, and the sensors find what is left.
    """
    try:
        yield
    except TransientError as error:
        raise RetryRequested(max_retries=MAX_RETRIES, seconds_to_wait=WAIT_SECONDS) from error
    except PrismError as error:
        raise failure(str(error)) from error


def failure(description: str) -> Failure:
    """A failure that is not tried again by itself: somebody must act first."""
    return Failure(description=description, allow_retries=False)
