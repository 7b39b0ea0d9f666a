"""Keys that are no paths: S3 accepts any text as a key, so listings, reads and deletions must reach them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.errors import (
    AccessDenied,
    MissingBucket,
    ObjectChanged,
    ObjectMissing,
    PrismError,
    StoreUnavailable,
    WrongUse,
)
from prism_assets.objectstore import stores as stores_module
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.s3 import _tries_within
from prism_assets.objectstore.stores import Stores, is_path
from prism_assets_tests.objectstore.conftest import Bucket

ODD = ["//", "/a", "a//b.json", "a/./b", "a/../b", "a/\tb", "a/\x7f", "a/b/", "./x", "x/.."]
PLAIN = ["%2F", "a+b c/d", "a/%2e%2e/b", "a/\u202eb", "a/b", "a/é", "a/😀", "a/\ufffd", "zz"]


def test_a_listing_finds_all_keys_as_they_are_and_in_order(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_module, "_PAGE", 3)
    bucket.put(*ODD, *PLAIN)
    assert bucket.keys() == sorted([*ODD, *PLAIN])
    assert bucket.keys("a/") == sorted(key for key in [*ODD, *PLAIN] if key.startswith("a/"))
    assert bucket.keys("a//") == ["a//b.json"]
    assert bucket.keys("nothing/") == []


@pytest.mark.parametrize("after", ["a/\tb", "a//b.json", "a/b", "a/b/", "a/é", "b"])
def test_a_listing_begins_behind_any_key(bucket: Bucket, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    monkeypatch.setattr(stores_module, "_PAGE", 3)
    bucket.put(*ODD, *PLAIN)
    assert bucket.keys(after=after) == sorted(key for key in [*ODD, *PLAIN] if key > after)


def test_a_listing_asks_for_a_page_when_it_is_needed(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_module, "_PAGE", 2)
    bucket.put("a", "b", "c", "d", "e")
    asked: list[object] = []
    listing = bucket.stores.list(bucket.name, "")
    bucket.stores._boto3()._client.meta.events.register("before-call.s3", lambda **_: asked.append(None))
    assert [next(listing).key, next(listing).key] == ["a", "b"]
    assert len(asked) == 1
    assert [item.key for item in listing] == ["c", "d", "e"]
    assert len(asked) == 3


def test_a_listing_says_what_reading_checks(bucket: Bucket) -> None:
    bucket.put("a//b")
    (item,) = bucket.stores.list(bucket.name, "")
    assert (item.content_length, item.last_modified.utcoffset() is not None) == (5, True)
    assert bucket.stores.get(bucket.name, "a//b", etag=item.etag) == b"hello"
    bucket.put("a//b", body=b"hello, world")
    with pytest.raises(ObjectChanged, match="a//b is no longer the object"):
        bucket.stores.get(bucket.name, "a//b", etag=item.etag)
    with pytest.raises(ObjectChanged):
        list(bucket.stores.get_chunks(bucket.name, "a//b", etag=item.etag))


@pytest.mark.parametrize("key", [*ODD, *PLAIN])
def test_an_object_is_read_and_deleted_under_its_very_key(bucket: Bucket, key: str) -> None:
    near = {"/".join(part for part in key.split("/") if part not in ("", ".", "..")), "a/b", "b", "a", "x"} - {key, ""}
    bucket.put(*near, body=b"another")
    bucket.put(key)
    stores = bucket.stores
    assert stores.get(bucket.name, key) == b"hello"
    assert b"".join(stores.get_chunks(bucket.name, key, chunk=2)) == b"hello"
    assert stores.length(bucket.name, key) == 5
    stores.delete(bucket.name, [key, key + "/none/", "none"])
    assert bucket.keys() == sorted(near)
    for read in (stores.get, stores.length, lambda *place: list(stores.get_chunks(*place))):
        with pytest.raises(ObjectMissing):
            read(bucket.name, key)


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "a/../b", "a\nb"])
def test_nothing_is_written_under_a_key_that_is_no_path(bucket: Bucket, key: str) -> None:
    for put in (bucket.stores.put, bucket.stores.put_new):
        with pytest.raises(WrongUse, match="without empty and dotted parts"):
            put(bucket.name, key, b"")
    assert bucket.keys() == []


def test_folders_on_disk_hold_no_such_objects(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    stores = Stores(StoreConfig(local_root=str(tmp_path), object_tags=False))
    stores.put("lake", "a/b", b"hello")
    for key in ("a//b", "a/../a/b", "a/b/"):
        for read in (stores.get, stores.length, lambda *place: list(stores.get_chunks(*place))):
            with pytest.raises(ObjectMissing):
                read("lake", key)
        stores.delete("lake", [key])
    assert stores.get("lake", "a/b") == b"hello"


def test_a_bucket_that_is_not_there_is_named(bucket: Bucket) -> None:
    for name in (bucket.name + "-none", "no bucket"):
        for call in (
            lambda name=name: list(bucket.stores.list(name, "")),
            lambda name=name: bucket.stores.check_bucket(name),
            lambda name=name: bucket.stores.get(name, "a//b"),
        ):
            with pytest.raises(MissingBucket, match=f"bucket {name} does not exist"):
                call()


def test_a_silent_server_is_transient() -> None:
    silent = Stores(StoreConfig(endpoint="http://127.0.0.1:1", retry_seconds=0.1))
    for call in (lambda: list(silent.list("lake", "")), lambda: silent.get("lake", "a//b")):
        with pytest.raises(
            StoreUnavailable, match=r"the object store at http://127\.0\.0\.1:1 does not answer"
        ) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_missing_credentials_are_denied_access(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    with pytest.raises(AccessDenied, match="check the credentials"):
        bucket.keys()


@pytest.fixture
def refusing(bucket: Bucket) -> Callable[[str, int], Bucket]:
    """A bucket whose server answers with an error: codes the local server never gives."""

    def refuse(code: str, status: int) -> Bucket:
        def answer(**_: object) -> None:
            response = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
            raise ClientError(response, "ListObjectsV2")  # type: ignore[arg-type]

        bucket.stores._boto3()._client.meta.events.register("before-parameter-build.s3", answer)
        return bucket

    return refuse


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("AccessDenied", 403, AccessDenied),
        ("SignatureDoesNotMatch", 403, AccessDenied),
        ("ExpiredToken", 400, AccessDenied),
        ("NoSuchBucket", 404, MissingBucket),
        ("SlowDown", 503, StoreUnavailable),
        ("InternalError", 500, StoreUnavailable),
        ("RequestTimeout", 400, StoreUnavailable),
    ],
)
def test_refusals_become_errors_that_say_whether_to_repeat(
    refusing: Callable[[str, int], Bucket], code: str, status: int, error: type[PrismError]
) -> None:
    with pytest.raises(error) as raised:
        refusing(code, status).keys()
    assert type(raised.value) is error


def test_tries_take_no_longer_than_the_settings_allow() -> None:
    assert [_tries_within(seconds) for seconds in (0, 0.9, 1, 3, 30, 1e6)] == [1, 1, 2, 3, 5, 7]


@given(st.lists(st.sampled_from(["a", "b c", "%2F", "é", "", ".", "..", "\t", "..."]), min_size=1, max_size=4))
def test_a_key_is_a_path_if_all_its_parts_are_names(parts: list[str]) -> None:
    assert is_path("/".join(parts)) == (not {"", ".", "..", "\t"} & set(parts))


def test_reading_ordinary_keys_needs_no_boto3(bucket: Bucket) -> None:
    """Workers avoid its import, which takes half a second."""
    bucket.put("a/b")
    program = (
        "import sys; from prism_assets.objectstore.config import StoreConfig; "
        "from prism_assets.objectstore.stores import Stores; "
        f"stores = Stores(StoreConfig(endpoint={bucket.stores.config.endpoint!r})); "
        f"assert stores.get({bucket.name!r}, 'a/b') == b'hello'; assert 'boto3' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
