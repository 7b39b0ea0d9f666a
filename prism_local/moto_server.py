"""The moto server, whose Glue compares versions of tables as that of AWS does.

`python -m prism_local.moto_server` takes the arguments of `moto.server`. Moto's own Glue ignores the version that an
update names: of two commits that were made from the same version it takes both, and the first is lost.
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
    """Moto's Glue, but for updates of tables that were made from a version that is no longer the present one."""

    def update_table(self) -> Any:
        """Compares and updates at once; an update that names no version is made, as before."""
        with _ONE_UPDATE:
            named = self.parameters.get("VersionId")
            if named is not None and named != self._present_version():
                message = "Update table failed due to concurrent modifications."
                raise JsonRESTError("ConcurrentModificationException", message)
            return super().update_table()

    def update_table_optimizer(self) -> Any:
        """Moto has no optimizers. They are noted, and nothing is optimized."""
        place = tuple(self.parameters[name] for name in ("DatabaseName", "TableName", "Type"))
        self._optimizers[place] = self.parameters["TableOptimizerConfiguration"]
        return "{}"

    def batch_get_table_optimizer(self) -> Any:
        """Those of tables that have some; the others fail, as those of AWS do."""
        found, failures = [], []
        for entry in self.parameters["Entries"]:
            known = self._optimizers.get((entry["databaseName"], entry["tableName"], entry["type"]))
            if known is None:
                error = {"ErrorCode": "EntityNotFoundException", "ErrorMessage": "there is no such optimizer"}
                failures.append({**entry, "error": error})
            else:
                found.append({**entry, "tableOptimizer": {"type": entry["type"], "configuration": known}})
        return json.dumps({"TableOptimizers": found, "Failures": failures})

    @property
    def _optimizers(self) -> dict[tuple[str, ...], Any]:
        """Kept at the backend, so that they go with it."""
        kept: dict[tuple[str, ...], Any] = vars(self.glue_backend).setdefault("table_optimizers", {})
        return kept

    def _present_version(self) -> str:
        database, table = self.parameters["DatabaseName"], self.parameters["TableInput"]["Name"]
        version: str = self.glue_backend.get_table(database, table).as_dict()["VersionId"]
        return version


if __name__ == "__main__":
    urls.url_paths["{0}/$"] = VersionedGlue.dispatch
    main()
