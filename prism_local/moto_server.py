"""The moto server, with a Glue that compares table versions as AWS does.

`python -m prism_local.moto_server` takes the arguments of `moto.server`. Moto's own Glue ignores the version in an
update: of two commits based on the same version it accepts both, and the first one is lost.
"""

import json
import threading
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.glue import urls
from moto.glue.responses import GlueResponse
from moto.server import main

_ONE_UPDATE = threading.Lock()


class VersionedGlue(GlueResponse):
    """Moto's Glue, but it refuses table updates based on an outdated version."""

    def update_table(self) -> Any:
        """Compares the version and updates, under one lock. An update without a version is accepted."""
        with _ONE_UPDATE:
            named = self.parameters.get("VersionId")
            if named is not None and named != self._current_version():
                message = "Update table failed due to concurrent modifications."
                raise JsonRESTError("ConcurrentModificationException", message)
            return super().update_table()

    def update_table_optimizer(self) -> Any:
        """Records an optimizer, because moto has none. Optimizes nothing."""
        place = tuple(self.parameters[name] for name in ("DatabaseName", "TableName", "Type"))
        self._optimizers[place] = self.parameters["TableOptimizerConfiguration"]
        return "{}"

    def batch_get_table_optimizer(self) -> Any:
        """Returns recorded optimizers. Entries without one fail, as in AWS."""
        found, failures = [], []
        for entry in self.parameters["Entries"]:
            configuration = self._optimizers.get((entry["databaseName"], entry["tableName"], entry["type"]))
            if configuration is None:
                error = {"ErrorCode": "EntityNotFoundException", "ErrorMessage": "there is no such optimizer"}
                failures.append({**entry, "error": error})
            else:
                found.append({**entry, "tableOptimizer": {"type": entry["type"], "configuration": configuration}})
        return json.dumps({"TableOptimizers": found, "Failures": failures})

    @property
    def _optimizers(self) -> dict[tuple[str, ...], Any]:
        """Stored at the backend, so a reset of the backend clears them."""
        kept: dict[tuple[str, ...], Any] = vars(self.glue_backend).setdefault("table_optimizers", {})
        return kept

    def _current_version(self) -> str:
        database, table = self.parameters["DatabaseName"], self.parameters["TableInput"]["Name"]
        version: str = self.glue_backend.get_table(database, table).as_dict()["VersionId"]
        return version


if __name__ == "__main__":
    urls.url_paths["{0}/$"] = VersionedGlue.dispatch
    main()
