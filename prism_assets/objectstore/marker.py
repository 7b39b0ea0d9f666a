"""The marker of a lake: a small object at its root that names the lake's database."""

from __future__ import annotations

import json
from contextlib import suppress

from prism_assets.domain.errors import ObjectMissing, WrongLake
from prism_assets.domain.files.keys import marker_key
from prism_assets.domain.installation import Installation
from prism_assets.objectstore.lake import Lake
from prism_assets.objectstore.stores import Stores


def marker_url(lake: Lake) -> str:
    """Returns the URL of a lake's marker."""
    return lake.url(marker_key(lake.prefix))


def read_marker(stores: Stores, lake: Lake) -> str | None:
    """Returns the id of the database that owns a lake, or None without a marker. Raises WrongLake if the marker is
    damaged.
    """
    try:
        body = stores.get(lake.bucket, marker_key(lake.prefix))
    except ObjectMissing:
        return None
    with suppress(ValueError, TypeError, KeyError):
        return str(json.loads(body)["installation_id"])
    raise WrongLake(
        f"{marker_url(lake)} is not as prism wrote it: restore it, or, if this lake belongs to this database, delete "
        "it and run `prism table apply --restore-marker`"
    )


def put_marker(stores: Stores, lake: Lake, installation: Installation) -> bool:
    """Writes the marker unless one exists; then returns False. The bytes depend on the installation alone."""
    document = {
        "installation_id": installation.installation_id,
        "bucket": lake.bucket,
        "prefix": lake.prefix,
        "note": "prism works on this lake only with the database that has the same id: do not delete, copy or change",
    }
    body = json.dumps(document, indent=2).encode() + b"\n"
    return stores.put_new(lake.bucket, marker_key(lake.prefix), body)
