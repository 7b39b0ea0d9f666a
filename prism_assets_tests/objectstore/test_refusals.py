"""Messages for people when an object store refuses: the fault in one sentence, without the clients' own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import date
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from prism_assets.domain.errors import (
    AccessDenied,
    CatalogUnavailable,
    MissingBucket,
    ObjectArchived,
    ObjectChanged,
    ObjectMissing,
    PrismError,
    StoreUnavailable,
)
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.stores import Stores
from prism_assets.reading.lake_reader import LakeReader
from prism_assets.settings import ReaderSettings
from prism_assets_tests.faulty_servers import DEAD, answering, hanging_up, refusing_conditions

NEVER = (
    "retries",
    "retry",
    "Generic",
    "performing",
    "bucket-check",
    "curl",
    "AWS Error",
    "Error(",
    "<Code>",
    "\n",
    "Debug",
)

FAULTS: dict[str, tuple[Callable[[ExitStack], str], type[PrismError], tuple[str, ...]]] = {
    "a dead port": (lambda stack: DEAD, StoreUnavailable, ("127.0.0.1:1 does not answer: check that it runs",)),
    "a reset connection": (
        lambda stack: stack.enter_context(hanging_up()),
        StoreUnavailable,
        ("does not answer: check that it runs", "broke off its answer"),
    ),
    "a server that is too busy": (
        lambda stack: stack.enter_context(answering(503, "SlowDown")),
        StoreUnavailable,
        ("answered 503", "answered SlowDown", "answered SLOW_DOWN"),
    ),
    "a server that fails": (
        lambda stack: stack.enter_context(answering(500, "InternalError")),
        StoreUnavailable,
        ("answered 500", "answered InternalError", "answered INTERNAL_FAILURE"),
    ),
    "a proxy before it that fails": (
        lambda stack: stack.enter_context(answering(502, body=b"<html>Bad Gateway</html>")),
        StoreUnavailable,
        ("answered 502",),
    ),
    "a refusal": (
        lambda stack: stack.enter_context(answering(403, "AccessDenied")),
        AccessDenied,
        ("access denied; check the credentials",),
    ),
    "no bucket": (
        lambda stack: stack.enter_context(answering(404, "NoSuchBucket")),
        MissingBucket,
        ("bucket lake does not exist: create it",),
    ),
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def said(call: Callable[[], object], kind: type[PrismError]) -> str:
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert not [word for word in NEVER if word in message], message
    return message


@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_that_refuses_is_told_in_a_sentence(fault: str, stack: ExitStack) -> None:
    start, kind, sentences = FAULTS[fault]
    stores = Stores(StoreConfig(endpoint=start(stack), retry_seconds=0.2))
    calls: dict[str, Callable[[], object]] = {
        "s3://lake/a/key": lambda: stores.get("lake", "a/key"),
        "s3://lake/a/put": lambda: stores.put("lake", "a/put", b""),
        "s3://lake/a//odd": lambda: stores.get("lake", "a//odd"),
        "bucket lake": lambda: stores.check_bucket("lake"),
    }
    for where, call in calls.items():
        message = said(call, kind)
        assert message.startswith(where) or kind is MissingBucket, message
        assert any(sentence in message for sentence in sentences), message


CODES = ("NoSuchBucket", "InvalidObjectState", "NotImplemented", "<Code>NoSuchBucket", "status: 501")


@pytest.mark.parametrize("key", [f"a/{code}</Code>.gz" for code in CODES])
def test_a_key_may_be_called_like_a_code_of_s3(key: str, tmp_path: Path) -> None:
    named = escape(key)
    for status, code, kind in (
        (404, "NoSuchKey", ObjectMissing),
        (404, "NoSuchBucket", MissingBucket),
        (403, "AccessDenied", AccessDenied),
        (403, "InvalidObjectState", ObjectArchived),
        (412, "PreconditionFailed", ObjectChanged),
        (500, "InternalError", StoreUnavailable),
    ):
        body = f"<Error><Code>{code}</Code><Message>no</Message><Key>{named}</Key></Error>".encode()
        with answering(status, body=body) as endpoint:
            stores = Stores(StoreConfig(endpoint=endpoint, retry_seconds=0.2))
            with pytest.raises(PrismError) as caught:
                stores.get("lake", key)
            assert type(caught.value) is kind
    (tmp_path / "lake").mkdir()
    with pytest.raises(ObjectMissing):
        Stores(StoreConfig(local_root=str(tmp_path))).get("lake", key)


@pytest.mark.parametrize(
    ("status", "code", "is_unknown"), [(501, "", True), (400, "NotImplemented", True), (400, "InvalidArgument", False)]
)
def test_only_a_store_without_conditional_writes_is_written_to_without(
    status: int, code: str, is_unknown: bool
) -> None:
    with refusing_conditions(status, code) as (endpoint, written):
        stores = Stores(StoreConfig(endpoint=endpoint, retry_seconds=0.2))
        with suppress(PrismError):
            assert stores.replace("lake", "a/NotImplemented", b"x", etag='"e"')
        assert bool(written) == is_unknown


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS if fault not in ("no bucket", "a proxy before it that fails")]
)
def test_a_store_that_refuses_a_reader_is_told_in_a_sentence(fault: str, stack: ExitStack) -> None:
    start, kind, sentences = FAULTS[fault]
    reader = LakeReader(ReaderSettings(s3_endpoint=start(stack)))
    location = "s3://lake/AccessDenied/manifest.json"
    message = said(lambda: reader._partition((date(2026, 3, 1), location, "")), kind)
    assert message.startswith(location), message
    assert any(sentence in message for sentence in sentences), message


@pytest.mark.parametrize(
    ("status", "code", "kind", "sentence"),
    [
        (400, "ThrottlingException", CatalogUnavailable, "answered ThrottlingException: repeat later"),
        (400, "AccessDeniedException", AccessDenied, "answered AccessDeniedException: check the credentials"),
        (503, "", CatalogUnavailable, "answered 503: repeat later"),
    ],
)
def test_a_glue_that_refuses_a_reader_is_told_in_a_sentence(
    status: int, code: str, kind: type[PrismError], sentence: str
) -> None:
    with answering(status, code) as endpoint:
        message = said(lambda: LakeReader(ReaderSettings(glue_endpoint=endpoint)).table("log.events"), kind)
    assert message.startswith(f"Glue at {endpoint} {sentence}")


def test_a_glue_that_is_not_there_is_told_in_a_sentence() -> None:
    reader = LakeReader(ReaderSettings(glue_endpoint=DEAD))
    message = said(lambda: reader.table("log.events"), CatalogUnavailable)
    remedy = "check that it runs, PRISM_GLUE_ENDPOINT and the network"
    assert message == f"Glue at {DEAD} does not answer ([Errno 111] Connection refused): {remedy}"
