"""Reading and writing objects on the local store, and the errors of the store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import S3Store

from prism_assets.domain.errors import MissingBucket, ObjectChanged, ObjectMissing, StoreUnavailable
from prism_assets.objectstore.config import StoreConfig
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.s3 import S3Keys
from prism_assets.objectstore.stores import Stores


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    (tmp_path / "lake").mkdir()
    return Stores(StoreConfig(local_root=str(tmp_path), object_tags=False))


def etag(stores: Stores, key: str) -> str:
    found = [item.etag for item in stores.list("lake", "") if item.key == key]
    assert found[0]
    return found[0]


def test_what_is_put_is_read(stores: Stores) -> None:
    stores.put("lake", "a/b", b"hello")
    assert stores.get("lake", "a/b") == b"hello"
    assert stores.length("lake", "a/b") == 5
    assert b"".join(stores.get_chunks("lake", "a/b", chunk=2)) == b"hello"


def test_an_object_with_the_discovered_etag_is_read(stores: Stores) -> None:
    stores.put("lake", "a", b"hello")
    assert stores.get("lake", "a", etag=etag(stores, "a")) == b"hello"


def test_an_object_that_changed_since_is_not_read(stores: Stores) -> None:
    stores.put("lake", "a", b"hello")
    before = etag(stores, "a")
    stores.put("lake", "a", b"hello, world")
    with pytest.raises(ObjectChanged, match="s3://lake/a is no longer the object"):
        stores.get("lake", "a", etag=before)
    with pytest.raises(ObjectChanged):
        list(stores.get_chunks("lake", "a", etag=before))


def test_an_object_that_is_not_there_is_named(stores: Stores) -> None:
    with pytest.raises(ObjectMissing, match="s3://lake/nothing does not exist"):
        stores.get("lake", "nothing")
    with pytest.raises(ObjectMissing):
        stores.length("lake", "nothing")
    with pytest.raises(ObjectMissing):
        list(stores.get_chunks("lake", "nothing"))


def test_a_bucket_that_is_not_there_is_named(stores: Stores) -> None:
    for call in (
        lambda: stores.get("nowhere", "a"),
        lambda: stores.put("nowhere", "a", b""),
        lambda: stores.delete("nowhere", ["a"]),
        lambda: list(stores.list("nowhere", "")),
        lambda: stores.check_bucket("nowhere"),
    ):
        with pytest.raises(MissingBucket, match="bucket nowhere does not exist"):
            call()


def test_a_bucket_that_is_made_later_is_found(stores: Stores, tmp_path: Path) -> None:
    with pytest.raises(MissingBucket):
        stores.check_bucket("later")
    (tmp_path / "later").mkdir()
    stores.check_bucket("later")


def test_deleting_what_is_not_there_is_no_error(stores: Stores) -> None:
    stores.put("lake", "a", b"1")
    stores.put("lake", "c", b"1")
    stores.delete("lake", ["a", "b", "c"])
    stores.delete("lake", ["a", "b", "c"])
    stores.delete("lake", [])
    assert list(stores.list("lake", "")) == []


def test_a_listing_takes_in_a_folder_with_all_below_it(stores: Stores) -> None:
    for key in ("a/1", "a/b/2", "ab/3", "c"):
        stores.put("lake", key, b"x")
    assert sorted(item.key for item in stores.list("lake", "a/")) == ["a/1", "a/b/2"]
    assert sorted(item.key for item in stores.list("lake", "")) == ["a/1", "a/b/2", "ab/3", "c"]
    assert list(stores.list("lake", "nothing/")) == []


def test_a_listing_begins_behind_a_key(stores: Stores) -> None:
    for key in ("a/1", "a/2", "a/3"):
        stores.put("lake", key, b"x")
    assert sorted(item.key for item in stores.list("lake", "a/", after="a/1")) == ["a/2", "a/3"]
    assert list(stores.list("lake", "a/", after="a/3")) == []


def test_a_listing_says_length_and_time(stores: Stores) -> None:
    stores.put("lake", "a", b"hello")
    (item,) = stores.list("lake", "")
    assert item.content_length == 5
    assert item.last_modified.tzinfo is not None


def test_an_object_is_written_over_only_if_it_is_the_one_that_was_read(stores: Stores) -> None:
    stores.put("lake", "a", b"torn")
    body, version = stores.read_version("lake", "a")
    assert body == b"torn"
    assert stores.replace("lake", "a", b"sound", etag=version)
    assert not stores.replace("lake", "a", b"late", etag=version)
    assert stores.get("lake", "a") == b"sound"
    stores.delete("lake", ["a"])
    assert not stores.replace("lake", "a", b"late", etag=version)
    assert list(stores.list("lake", "")) == []
    with pytest.raises(ObjectMissing):
        stores.read_version("lake", "a")


def test_the_same_bytes_put_again_leave_one_object(stores: Stores) -> None:
    stores.put("lake", "a", b"hello")
    stores.put("lake", "a", b"hello")
    assert [item.key for item in stores.list("lake", "")] == ["a"]


def test_a_silent_server_is_told_from_a_missing_object(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    stores = Stores(StoreConfig(endpoint="http://127.0.0.1:1", retry_seconds=0.1))
    with pytest.raises(StoreUnavailable, match=r"s3://lake/a: the object store at http\S+ does not answer") as raised:
        stores.get("lake", "a")
    assert "\n" not in str(raised.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_an_object_that_may_not_be_read_is_told_from_a_missing_one(stores: Stores, tmp_path: Path) -> None:
    stores.put("lake", "a", b"hello")
    (tmp_path / "lake" / "a").chmod(0)
    with pytest.raises(StoreUnavailable):
        stores.get("lake", "a")


configs = st.builds(
    StoreConfig,
    endpoint=st.none() | st.text(),
    region=st.text(),
    local_root=st.none() | st.text(),
    object_tags=st.booleans(),
    retry_seconds=st.floats(0, 1e6),
)


@given(st.builds(Lake, bucket=st.text(), prefix=st.text(), store=configs))
def test_a_lake_travels_to_tasks_as_it_is(lake: Lake) -> None:
    assert Lake.from_json(lake.to_json()) == lake
    assert StoreConfig.from_json(lake.store.to_json()) == lake.store


def test_a_url_is_bucket_and_key() -> None:
    assert Lake("lake", "p/", StoreConfig()).url("p/a") == "s3://lake/p/a"


@pytest.mark.parametrize("name", ["AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"])
def test_the_settings_alone_say_where_the_store_is(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The environment of a worker does not count, because a worker would then write elsewhere than its driver."""
    monkeypatch.setenv(name, "http://127.0.0.1:1")
    aws = StoreConfig(region="eu-west-1")
    rust = Stores(aws)._store("our-logs")
    assert isinstance(rust, S3Store)
    assert rust.config["endpoint"] == "https://our-logs.s3.eu-west-1.amazonaws.com"
    assert S3Keys(aws)._client.meta.endpoint_url == "https://s3.eu-west-1.amazonaws.com"
    own = StoreConfig(endpoint="http://127.0.0.1:2")
    there = Stores(own)._store("our-logs")
    assert isinstance(there, S3Store)
    assert there.config["endpoint"] == S3Keys(own)._client.meta.endpoint_url == "http://127.0.0.1:2"
