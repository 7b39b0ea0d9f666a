"""The one place where errors of prism_assets become what Dagster understands: a retry, or a failure for good."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from dagster import Failure, RetryRequested
from dagster._core.errors import DagsterUserCodeProcessError
from dagster_shared.error import SerializableErrorInfo

from prism_assets.domain.errors import PrismError, TransientError

MAX_RETRIES = 3
WAIT_SECONDS = 10.0


def sentence_alone(sentence: str, kind: str) -> DagsterUserCodeProcessError:
    """A failure that Dagster shows as this sentence alone. With other failures it shows a stack trace."""
    shown = SerializableErrorInfo(message=sentence, stack=[], cls_name=kind)
    return DagsterUserCodeProcessError(sentence, user_code_process_error_infos=[shown])  # type: ignore[no-untyped-call]


@contextmanager
def told_while_loading() -> Iterator[None]:
    """Lets Dagster show only the sentence of an error in settings or table files, and no stack trace."""
    try:
        yield
    except PrismError as error:
        raise sentence_alone(str(error), type(error).__name__) from None


@contextmanager
def mapped() -> Iterator[None]:
    """Turns transient errors into a retry of the step and all others of the tree into a failure without one.

    Nothing is lost by either: what was committed stays, and the sensors find what is left.
    """
    try:
        yield
    except TransientError as error:
        raise_for(str(error), transient=True)
    except PrismError as error:
        raise_for(str(error), transient=False)


def raise_for(description: str, *, transient: bool) -> NoReturn:
    """Raises a retry of the step for what may pass by itself, otherwise a failure: somebody must act first.

    When all tries are used up Dagster tells nothing but that, and the description of the failure that caused it.
    """
    failure = Failure(description=description, allow_retries=False)
    if transient:
        raise RetryRequested(max_retries=MAX_RETRIES, seconds_to_wait=WAIT_SECONDS) from failure
    raise failure
