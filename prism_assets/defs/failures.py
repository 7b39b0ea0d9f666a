"""Translates errors of prism_assets for Dagster: into a retry, or into a final failure."""

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
    """Returns a failure shown as this sentence alone. Dagster shows other failures with a stack trace."""
    shown = SerializableErrorInfo(message=sentence, stack=[], cls_name=kind)
    return DagsterUserCodeProcessError(sentence, user_code_process_error_infos=[shown])  # type: ignore[no-untyped-call]


@contextmanager
def shown_while_loading() -> Iterator[None]:
    """Shows errors in settings or table files without a stack trace."""
    try:
        yield
    except PrismError as error:
        raise sentence_alone(str(error), type(error).__name__) from None


@contextmanager
def mapped() -> Iterator[None]:
    """Turns transient errors into a retry of the step, and other errors of the tree into a final failure.

    Neither loses anything: committed work stays, and the sensors find the rest.
    """
    try:
        yield
    except TransientError as error:
        raise_for(str(error), transient=True)
    except PrismError as error:
        raise_for(str(error), transient=False)


def raise_for(description: str, *, transient: bool) -> NoReturn:
    """Raises a retry for a transient problem, otherwise a failure, because somebody must act first.

    After the last retry, Dagster shows the description of the underlying failure.
    """
    failure = Failure(description=description, allow_retries=False)
    if transient:
        raise RetryRequested(max_retries=MAX_RETRIES, seconds_to_wait=WAIT_SECONDS) from failure
    raise failure
