"""Keys of the lake, against the golden ones of the formats."""

from __future__ import annotations

from datetime import date

import pytest

from prism_assets.domain.days.partitions import Publication
from prism_assets.domain.files.keys import (
    ManifestKey,
    MergedObjectKey,
    QuarantineKey,
    SmallObjectKey,
    SpoolKey,
    SymlinkKey,
    TableKeys,
    is_symlink_folder,
    marker_key,
    spool_name,
    table_hash,
)
from prism_assets.domain.names import TableName
from prism_assets.domain.streams.topic import Topic
from prism_assets_tests.builders import utc

DAY = date(2018, 8, 23)
NANIKA = TableKeys("lake", "global-prefix/", TableName("test_schema", "nanika_log"))


def test_the_root_is_the_golden_one() -> None:
    assert NANIKA.root == "global-prefix/b601.test_schema.nanika_log/"


def test_the_root_of_physical_names_is_the_golden_one() -> None:
    name = TableName("test_schema", "nanika_log", "phy_test_schema", "phy_nanika_log")
    assert TableKeys("lake", "global-prefix/", name).root == "global-prefix/342b.phy_test_schema.phy_nanika_log/"


def test_a_rename_keeps_the_root_with_the_old_physical_names() -> None:
    renamed = TableName("new_schema", "new_log", "test_schema", "nanika_log")
    assert TableKeys("lake", "global-prefix/", renamed).root == NANIKA.root


def test_the_marker_of_a_lake_lies_beside_the_folders_of_its_tables() -> None:
    assert marker_key("lake/") == "lake/prism-installation.json"
    assert marker_key("") == "prism-installation.json"


def test_the_prefix_may_be_empty() -> None:
    assert TableKeys("lake", "", TableName("test_schema", "nanika_log")).root == "b601.test_schema.nanika_log/"


def test_small_objects_carry_the_staging_object_id() -> None:
    assert NANIKA.small_object(DAY, 12, delayed=False) == (
        "global-prefix/b601.test_schema.nanika_log/live/dt=2018-08-23/prism-0000000000000000012.parquet"
    )
    assert NANIKA.small_object(DAY, 12, delayed=True) == (
        "global-prefix/b601.test_schema.nanika_log/delayed/dt=2018-08-23/prism-0000000000000000012.parquet"
    )


def test_merged_objects_carry_their_bounds() -> None:
    assert NANIKA.merged_object(DAY, 0, 7) == (
        "global-prefix/b601.test_schema.nanika_log/merged/dt=2018-08-23/"
        "part-0000000000000000000-0000000000000000007.parquet"
    )


@pytest.mark.parametrize(
    ("upper", "published", "name"),
    [
        (7, 7, "manifest-0000000000000000007.json"),
        (7, 3, "manifest-0000000000000000007.json"),
        (7, 9, "manifest-0000000000000000007-0000000000000000009.json"),
        (0, 9, "manifest-0000000000000000000-0000000000000000009.json"),
    ],
)
def test_manifests_carry_what_they_reach(upper: int, published: int, name: str) -> None:
    assert NANIKA.manifest(DAY, upper, published) == f"{NANIKA.merged_prefix(DAY)}{name}"
    again = name.replace(".json", "-r2.json")
    assert NANIKA.manifest(DAY, upper, published, 2) == f"{NANIKA.merged_prefix(DAY)}{again}"


def test_a_list_of_symlinks_is_alone_in_its_folder() -> None:
    key = NANIKA.symlinks(DAY, 7, 9, 2)
    assert key == (f"{NANIKA.root}symlink/dt=2018-08-23/version-0000000000000000007-0000000000000000009-r2/objects.txt")
    assert is_symlink_folder(f"s3://lake/{key.removesuffix('objects.txt')}")
    for other in (NANIKA.live_prefix(DAY), NANIKA.root, NANIKA.manifest(DAY, 7, 9, 2), key):
        assert not is_symlink_folder(f"s3://lake/{other}")


def test_quarantine_lies_under_the_day_of_arrival() -> None:
    assert NANIKA.quarantine(utc("2018-08-24T03:15"), 12) == (
        "global-prefix/b601.test_schema.nanika_log/quarantine/dt=2018-08-24/prism-0000000000000000012.jsonl.gz"
    )


def test_numbers_of_any_size_sort_as_text() -> None:
    ids = [1, 9, 10, 1 << 40, (1 << 63) - 1]
    keys = [NANIKA.small_object(DAY, number, delayed=False) for number in ids]
    assert keys == sorted(keys)
    assert len({len(key) for key in keys}) == 1


def test_the_hash_is_four_hex_digits() -> None:
    hashes = {table_hash(TableName("log", f"t{number}")) for number in range(50)}
    assert all(len(text) == 4 and set(text) <= set("0123456789abcdef") for text in hashes)
    assert len(hashes) > 40


def test_each_new_start_of_an_object_has_keys_of_its_own() -> None:
    keys = [NANIKA.small_object(DAY, 12, delayed=False, generation=number) for number in range(3)]
    assert keys[0] == NANIKA.small_object(DAY, 12, delayed=False), "the first has the published key"
    assert keys[1].endswith("live/dt=2018-08-23/prism-0000000000000000012-g1.parquet")
    assert [NANIKA.parse(key) for key in keys] == [SmallObjectKey(DAY, 12, number, False) for number in range(3)]
    assert NANIKA.quarantine(utc("2018-08-23T12:00"), 12, 1).endswith("/prism-0000000000000000012-g1.jsonl.gz")


def test_a_rewritten_small_object_lies_where_no_reader_lists_it() -> None:
    key = NANIKA.small_object(DAY, 12, delayed=False, rewrite_id=1)
    assert key.endswith("delayed/dt=2018-08-23/prism-0000000000000000012-r1.parquet")
    assert key == NANIKA.small_object(DAY, 12, delayed=True, rewrite_id=1)
    assert NANIKA.parse(key.replace("/delayed/", "/live/")) is None


@pytest.mark.parametrize(
    ("key", "named"),
    [
        (NANIKA.small_object(DAY, 12, delayed=True, generation=3), SmallObjectKey(DAY, 12, 3, True)),
        (NANIKA.merged_object(DAY, 5, 12), MergedObjectKey(DAY, 5, 12)),
        (NANIKA.manifest(DAY, 7, 7), ManifestKey(DAY, Publication(7, 7))),
        (NANIKA.manifest(DAY, 7, 9, 2), ManifestKey(DAY, Publication(7, 9, 2))),
        (NANIKA.manifest(DAY, 0, 9), ManifestKey(DAY, Publication(0, 9))),
        (NANIKA.symlinks(DAY, 7, 7), SymlinkKey(DAY, Publication(7, 7))),
        (NANIKA.symlinks(DAY, 7, 9, 2), SymlinkKey(DAY, Publication(7, 9, 2))),
        (NANIKA.symlinks(DAY, 0, 9), SymlinkKey(DAY, Publication(0, 9))),
        (NANIKA.quarantine(DAY, 12, 1), QuarantineKey(DAY, 12, 1)),
        (NANIKA.quarantine(DAY, 12, 1, 3), QuarantineKey(DAY, 12, 1, 3)),
        (NANIKA.small_object(DAY, 12, delayed=True, generation=3, rewrite_id=2), SmallObjectKey(DAY, 12, 3, True, 2)),
    ],
)
def test_a_key_says_what_it_was_built_of(key: str, named: object) -> None:
    assert NANIKA.parse(key) == named


@pytest.mark.parametrize(
    "key",
    [
        "prism-installation.json",
        "global-prefix/prism-installation.json",
        f"{NANIKA.root}README",
        f"{NANIKA.root}iceberg/metadata/00001.metadata.json",
        f"{NANIKA.live_prefix(DAY)}prism-12.parquet",
        f"{NANIKA.live_prefix(DAY)}prism-0000000000000000012.parquet#1",
        f"{NANIKA.live_prefix(DAY)}prism-0000000000000000012.jsonl.gz",
        f"{NANIKA.live_prefix(DAY)}prism-0000000000000000012-g0.parquet",
        f"{NANIKA.live_prefix(DAY)}prism-0000000000000000012-g01.parquet",
        f"{NANIKA.live_prefix(DAY)}prism-0000000000000000012-g4294967296.parquet",
        f"{NANIKA.live_prefix(DAY)}prism-9999999999999999999.parquet",
        f"{NANIKA.live_prefix(DAY)}more/prism-0000000000000000012.parquet",
        f"{NANIKA.live_prefix(DAY)}part-0000000000000000000-0000000000000000012.parquet",
        f"{NANIKA.merged_prefix(DAY)}prism-0000000000000000012.parquet",
        f"{NANIKA.merged_prefix(DAY)}manifest-0000000000000000007-0000000000000000007.json",
        f"{NANIKA.merged_prefix(DAY)}manifest-0000000000000000007-r0.json",
        f"{NANIKA.merged_prefix(DAY)}version-0000000000000000007.json",
        f"{NANIKA.root}symlink/dt=2018-08-23/manifest-0000000000000000007/objects.txt",
        f"{NANIKA.root}symlink/dt=2018-08-23/version-0000000000000000007/others.txt",
        f"{NANIKA.root}symlink/dt=2018-08-23/version-0000000000000000007-r0/objects.txt",
        f"{NANIKA.root}live/dt=2018-02-30/prism-0000000000000000012.parquet",
        f"{NANIKA.root}live/dt=2018-08-23/prism-" + "\N{ARABIC-INDIC DIGIT ONE}" * 19 + ".parquet",
        NANIKA.small_object(DAY, 12, delayed=False).replace("nanika_log", "other_log"),
        NANIKA.small_object(DAY, 12, delayed=False).removeprefix("global-prefix/"),
    ],
)
def test_a_key_that_was_not_built_so_says_nothing(key: str) -> None:
    assert NANIKA.parse(key) is None


def test_archived_rows_of_other_objects_have_another_key() -> None:
    keys = {NANIKA.archived_rows("small_objects", ids) for ids in ([1, 2, 3], [1, 3], [3, 2, 1])}
    assert len(keys) == 2
    assert all(key.startswith(f"{NANIKA.root}archive/small_objects/{1:019d}-{3:019d}-") for key in keys)


SPOOLED = spool_name("q2Yk/8hwT-a", 3, 12, "0123456789abcdef" * 4)


def test_a_spool_object_is_named_by_its_topic_and_its_first_message() -> None:
    key = NANIKA.spool(Topic(cluster="main", name="app.events"), DAY, SPOOLED)
    assert key == (
        "global-prefix/b601.test_schema.nanika_log/spool/main/app.events/dt=2018-08-23/"
        "q2Yk_8hwT-a-00003-0000000000000000012-0123456789abcdef.parquet"
    )
    assert NANIKA.parse(key) == SpoolKey(DAY, "main", "app.events", SPOOLED)
    assert key.startswith(NANIKA.all_spool_prefix)
    assert Topic(cluster="main", name="app.events").holds(key)
    assert not Topic(cluster="main", name="events").holds(key)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("dt=2018-08-23", "dt=2018-02-30"),
        ("/main/", "/Main/"),
        ("-00003-", "-3-"),
        ("-00003-", "-000003-"),
        ("-00003-", "-9999999999-"),
        ("-0000000000000000012-", "-9999999999999999999-"),
        ("abcdef.parquet", "abcde.parquet"),
        ("/spool/", "/spool/more/"),
        ("/q2Yk", "/below/q2Yk"),
    ],
)
def test_other_keys_below_the_spool_are_foreign(old: str, new: str) -> None:
    key = NANIKA.spool(Topic(cluster="main", name="app.events"), DAY, SPOOLED)
    assert NANIKA.parse(key.replace(old, new, 1)) is None


def test_partitions_of_six_digits_have_keys_too() -> None:
    key = NANIKA.spool(Topic(cluster="main", name="app"), DAY, spool_name("t", 123456, 0, "0" * 64))
    assert NANIKA.parse(key) is not None
