"""Manifests: their golden text, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prism_assets.domain.errors import InvariantBroken
from prism_assets.domain.files.data_file import SmallObject
from prism_assets.objectstore.manifests import ManifestEntry, read_manifest, write_manifest
from prism_assets_tests.builders import a_small_object

files = st.lists(
    st.builds(a_small_object, key=st.text(), content_length=st.integers(0, 1 << 60)), unique_by=lambda file: file.key
)


def test_the_text_is_the_golden_one() -> None:
    assert write_manifest([a_small_object(bucket="bucket", key="key", content_length=123)]) == (
        b'{"entries":[{"url":"s3://bucket/key","mandatory":true,"meta":{"content_length":123}}]}'
    )


@given(files)
def test_what_is_written_is_read_back_in_order(wanted: list[SmallObject]) -> None:
    assert read_manifest(write_manifest(wanted)) == [ManifestEntry(f.url, f.content_length) for f in wanted]


def test_an_object_named_twice_is_refused_as_it_would_be_read_twice() -> None:
    with pytest.raises(InvariantBroken, match="twice"):
        write_manifest([a_small_object(1, key="k"), a_small_object(2, key="k", content_length=2)])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"rubbish",
        b"\xff\xfe",
        b"[]",
        b"5",
        b"null",
        b"{}",
        b'{"entries": null}',
        b'{"entries": 5}',
        b'{"entries": [5]}',
        b'{"entries": ["s3://b/k"]}',
        b'{"entries": [{"url": "s3://b/k"}]}',
        b'{"entries": [{"url": "s3://b/k", "meta": {}}]}',
        b'{"entries": [{"url": "s3://b/k", "meta": {"content_length": null}}]}',
        b'{"entries": [{"url": "s3://b/k", "meta": {"content_length": "long"}}]}',
        b'{"entries": [{"meta": {"content_length": 1}}]}',
        b'{"entries":[{"url":"s3://bucket/key","mandatory":true,"meta":{"content_le',
    ],
)
def test_rubbish_is_no_manifest(body: bytes) -> None:
    with pytest.raises(InvariantBroken, match="not a manifest"):
        read_manifest(body)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    try:
        read_manifest(body)
    except InvariantBroken:
        return
