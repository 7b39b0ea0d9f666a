"""The moto server, whose Glue compares versions of tables as that of AWS does.

`python -m prism_local.moto_server` takes the arguments of `moto.server`. Moto's own Glue ignores the version that an
update names: of two commits that were made from the same version it takes both, and the first is lost.
"""

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

    def _present_version(self) -> str:
        database, table = self.parameters["DatabaseName"], self.parameters["TableInput"]["Name"]
        version: str = self.glue_backend.get_table(database, table).as_dict()["VersionId"]
        return version


if __name__ == "__main__":
    urls.url_paths["{0}/$"] = VersionedGlue.dispatch
    main()
