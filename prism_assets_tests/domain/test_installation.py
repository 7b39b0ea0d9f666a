"""Relations of a database and a lake, and the messages about them."""

from __future__ import annotations

import dataclasses

import pytest

from prism_assets.domain.installation import Belonging, Installation, Place, belonging, wrong_lake_sentence

HERE = Place(bucket="lake", prefix="", endpoint="http://127.0.0.1:9000")
MARKED = Installation(installation_id="a", place=HERE, marked=True)
BEGUN = dataclasses.replace(MARKED, marked=False)


def at(**changes: str) -> Place:
    return dataclasses.replace(HERE, **changes)


@pytest.mark.parametrize(
    ("known", "place", "marker_id", "found"),
    [
        (None, HERE, None, Belonging.FREE),
        (None, HERE, "a", Belonging.FOREIGN),
        (BEGUN, HERE, None, Belonging.FREE),
        (BEGUN, HERE, "a", Belonging.FREE),
        (BEGUN, HERE, "b", Belonging.FOREIGN),
        (BEGUN, at(prefix="x/"), None, Belonging.FREE),
        (BEGUN, at(prefix="x/"), "b", Belonging.FOREIGN),
        (MARKED, HERE, "a", Belonging.OURS),
        (MARKED, at(endpoint="http://127.0.0.1:9001"), "a", Belonging.OURS),
        (MARKED, HERE, "b", Belonging.FOREIGN),
        (MARKED, HERE, None, Belonging.MARKER_MISSING),
        (MARKED, at(prefix="x/"), None, Belonging.ELSEWHERE),
        (MARKED, at(prefix="x/"), "a", Belonging.ELSEWHERE),
        (MARKED, at(bucket="pond"), "a", Belonging.ELSEWHERE),
    ],
)
def test_bucket_prefix_and_marker_decide(
    known: Installation | None, place: Place, marker_id: str | None, found: Belonging
) -> None:
    assert belonging(known, place, marker_id) is found


@pytest.mark.parametrize("found", [item for item in Belonging if item is not Belonging.OURS])
def test_every_refusal_names_the_lake_and_what_to_do(found: Belonging) -> None:
    told = wrong_lake_sentence(found, MARKED, at(prefix="x/"), "s3://lake/x/prism-installation.json")
    assert "s3://lake/x/" in told
    assert "correct PRISM_" in told or "run `prism table apply`" in told
