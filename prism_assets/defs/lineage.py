"""Makes the lineage easy to navigate: tags to select by, and links to source files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from dagster import (
    AssetSpec,
    BetaWarning,
    CodeReferencesMetadataValue,
    LocalFileCodeReference,
    MetadataValue,
    UrlCodeReference,
)

from prism_assets.defs.keys import part_of
from prism_assets.defs.location import Location
from prism_assets.domain.tables.definition import TableDefinition

TABLE_TAG = "prism/table"
_REFERENCES = "dagster/code_references"
_PACKAGE = Path(__file__).resolve().parents[1]
_MODULES = {
    "staging": "discover/listings",
    "live": "stream/run",
    "merged": "merge/run",
    "records": "fold/run",
    "catalog": "catalog/run",
    "iceberg": "iceberg/run",
    "table": "status",
}


def placed(spec: AssetSpec, table: TableDefinition, location: Location) -> AssetSpec:
    """Returns the asset with its table's group and tag, and links to the table file and the stage's module.

    The selection `tag:"prism/table"="log.pv_log"` then shows one row of the lineage.
    """
    stage = part_of(spec.key)
    module = _PACKAGE / "stages" / f"{_MODULES[stage]}.py"
    links = [_SourceLink(Path(table.path), location.folder.absolute().parent, "table file")] if table.path else []
    links.append(_SourceLink(module, _PACKAGE.parent, f"module of {stage}"))
    return spec.replace_attributes(group_name=location.groups[str(table.name)]).merge_attributes(
        tags={TABLE_TAG: str(table.name)},
        metadata={"dagster/table_name": str(table.name), **_metadata(links, location.source_url)},
    )


class _SourceLink:
    """A file, and the folder that is the root of its repository."""

    def __init__(self, path: Path, root: Path, label: str) -> None:
        self.path = path.absolute()
        self.label = label
        self._root = root.absolute()

    def url(self, base: str) -> str:
        return f"{base.rstrip('/')}/{self.path.relative_to(self._root).as_posix()}#L1"


def _metadata(links: list[_SourceLink], source_url: str | None) -> dict[str, Any]:
    """Returns code references: URLs in the repository if its URL is set, otherwise local files."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BetaWarning)  # one warning a table and stage; a test pins the parts used here
        references: list[LocalFileCodeReference | UrlCodeReference] = [
            UrlCodeReference(url=link.url(source_url), label=link.label)
            if source_url
            else LocalFileCodeReference(file_path=str(link.path), line_number=1, label=link.label)
            for link in links
        ]
        found: dict[str, Any] = {_REFERENCES: CodeReferencesMetadataValue(code_references=references)}
    if links[0].label == "table file":
        file = links[0]
        found["table file"] = MetadataValue.url(file.url(source_url)) if source_url else MetadataValue.path(file.path)
    return found
