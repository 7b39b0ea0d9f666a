"""How errors of the tree reach Dagster."""

from __future__ import annotations

import pytest
from dagster import Failure, RetryRequested

from prism_assets.defs.failures import MAX_RETRIES, mapped
from prism_assets.domain import errors
from prism_assets.domain.errors import PrismError, TerminalError, TransientError


def leaves(root: type[PrismError]) -> list[type[PrismError]]:
    return [root, *(leaf for child in root.__subclasses__() for leaf in leaves(child))]


@pytest.mark.parametrize("error", leaves(TransientError))
def test_transient_errors_are_tried_again(error: type[PrismError]) -> None:
    with pytest.raises(RetryRequested) as caught, mapped():
        raise error("the server is away")
    assert caught.value.max_retries == MAX_RETRIES
    assert isinstance(caught.value.__cause__, Failure)  # what Dagster shows when all tries are used up
    assert caught.value.__cause__.description == "the server is away"


@pytest.mark.parametrize("error", leaves(TerminalError))
def test_terminal_errors_fail_at_once_with_their_own_sentence(error: type[PrismError]) -> None:
    with pytest.raises(Failure) as caught, mapped():
        raise error("somebody must act")
    assert caught.value.description == "somebody must act"
    assert caught.value.allow_retries is False


def test_errors_of_nobody_are_left_as_they_are() -> None:
    with pytest.raises(ZeroDivisionError), mapped():
        _ = 1 / 0
    assert errors.PrismError in leaves(PrismError)
