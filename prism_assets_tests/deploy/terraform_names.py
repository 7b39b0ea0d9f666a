"""Holds the names in Terraform's files against their declarations, and resources against the schema of AWS's provider.

`scripts/deploy-check` runs this module in an environment of its own, with python-hcl2. `terraform validate` finds more,
and takes the provider, which no package registry has. The schema comes from the package of the provider for CDKTF.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hcl2  # type: ignore[import-not-found]

PROVIDER = "cdktf-cdktf-provider-aws==21.22.1"
_KEPT = Path(".prism/terraform-provider-aws.json.gz")
_META = ("count", "for_each", "depends_on", "provider", "lifecycle", "dynamic", "source", "version", "provisioner")
_REFERENCES = {
    "var": re.compile(r"\bvar\.(\w+)"),
    "local": re.compile(r"\blocal\.(\w+)"),
    "module": re.compile(r"\bmodule\.(\w+)"),
    "data": re.compile(r"\bdata\.(\w+\.\w+)"),
    "resource": re.compile(r"(?<![\w.])(aws_\w+\.\w+)"),
}


def main(folder: Path, with_schema: bool) -> int:
    """Prints all problems of a folder and its modules. Returns the exit status."""
    schema = provider_schema() if with_schema else None
    problems = [
        problem
        for module in sorted({file.parent for file in folder.rglob("*.tf")})
        for problem in (*unknown_names(module), *(unknown_arguments(module, schema) if schema else ()))
    ]
    for problem in problems:
        print(f"deploy-check: {problem}")
    if not problems:
        against = f"their declarations{' and the schema of ' + PROVIDER if schema else ''}"
        print(f"deploy-check: Terraform: names agree with {against}")
    return 1 if problems else 0


def read(module: Path) -> list[dict[str, Any]]:
    """Returns the content of all files of a module."""
    files = [json.loads(file.read_text()) for file in module.glob("*.tf.json")]
    return [*files, *(hcl2.loads(file.read_text()) for file in sorted(module.glob("*.tf")))]


def unknown_names(module: Path) -> Iterator[str]:
    """Yields references to variables, locals, modules, data and resources that the module does not declare."""
    files = read(module)
    declared = {
        "var": set(_labels(files, "variable")),
        "local": {name for file in files for block in _blocks(file.get("locals")) for name in block},
        "module": set(_labels(files, "module")),
        "data": set(_typed_labels(files, "data")),
        "resource": set(_typed_labels(files, "resource")),
    }
    text = "\n".join(_without_comments(file.read_text()) for file in sorted(module.glob("*.tf")))
    for kind, pattern in _REFERENCES.items():
        searched = re.sub(r"\bdata\.aws_\w+\.\w+", "", text) if kind == "resource" else text
        for name in sorted(set(pattern.findall(searched)) - declared[kind]):
            yield f"{module}: {kind} {name} is not declared"
    for name in sorted(declared["var"]):
        if not re.search(rf"\bvar\.{name}\b", text):
            yield f"{module}: the variable {name} is not used"


def unknown_arguments(module: Path, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yields resources, data and arguments that the provider does not know."""
    for kind in ("resource", "data"):
        for file in read(module):
            for typed in _blocks(file.get(kind)):
                for found, bodies in typed.items():
                    resource = _bare(found)
                    name = resource if kind == "resource" else f"data_{resource}"
                    if name not in schema["resources"]:
                        yield f"{module}: the provider has no {kind} {resource}"
                        continue
                    for label, body in bodies.items():
                        where = f"{module}: {resource}.{_bare(label)}"
                        yield from _unknown_in(body, schema["resources"][name], schema["structs"], where)


def _unknown_in(body: Any, struct: str, structs: Mapping[str, Any], where: str) -> Iterator[str]:
    known: Mapping[str, str | None] = structs[struct]
    for entry in _blocks(body):
        for written, value in entry.items():
            key = _bare(written)
            if key == "dynamic":
                for block in _blocks(value):
                    for name, content in block.items():
                        inner = [part["content"] for part in _blocks(content)]
                        nested = [one for part in inner for one in _blocks(part)]
                        yield from _unknown_in([{name: nested}], struct, structs, where)
            elif key in _META or key.startswith("__"):
                continue
            elif key not in known:
                yield f"{where} has no argument {key}"
            elif (inner_struct := known[key]) and isinstance(value, (list, dict)):
                yield from _unknown_in(value, inner_struct, structs, f"{where}.{key}")


def provider_schema() -> dict[str, Any]:
    """Returns resources and their arguments from the provider's package, which is fetched once."""
    if _KEPT.exists():
        kept: dict[str, Any] = json.loads(gzip.decompress(_KEPT.read_bytes()))
        return kept
    with tempfile.TemporaryDirectory() as folder:
        fetch = ["pip", "download", "-q", "--no-deps", "--disable-pip-version-check", "-d", folder, PROVIDER]
        subprocess.run([sys.executable, "-m", *fetch], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        schema = _schema_of(_assembly(wheel))
    _KEPT.parent.mkdir(exist_ok=True)
    _KEPT.write_bytes(gzip.compress(json.dumps(schema).encode()))
    return schema


def _assembly(wheel: Path) -> dict[str, Any]:
    """Returns the description of all classes, which jsii packs into the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".jsii.tgz"))
        with tarfile.open(fileobj=io.BytesIO(archive.read(name))) as packed:
            found = {
                member.name: member for member in packed.getmembers() if member.name.endswith((".jsii", ".jsii.gz"))
            }
            texts = {name: packed.extractfile(member).read() for name, member in found.items()}  # type: ignore[union-attr]
    text = next((texts[name] for name in texts if name.endswith(".gz")), None)
    assembly: dict[str, Any] = json.loads(gzip.decompress(text) if text else next(iter(texts.values())))
    return assembly


def _schema_of(assembly: Mapping[str, Any]) -> dict[str, Any]:
    structs, resources = {}, {}
    for name, described in assembly["types"].items():
        if described["kind"] == "interface":
            structs[name] = {
                _snake(field["name"]): _struct_in(field.get("type"), assembly)
                for field in described.get("properties", ())
            }
    for name, described in assembly["types"].items():
        if described["kind"] != "class":
            continue
        kind = next((item for item in described.get("properties", ()) if item["name"] == "tfResourceType"), None)
        if kind and f"{name}Config" in structs:
            resource = "aws" + _snake(name.rpartition(".")[2].removeprefix("DataAws"), "_")
            is_data = name.rpartition(".")[2].startswith("DataAws")
            # A class whose name another one has as a nested type ends with A, such as S3BucketVersioningA.
            for known in (resource, resource.removesuffix("_a")):
                resources[f"data_{known}" if is_data else known] = f"{name}Config"
    return {"structs": structs, "resources": resources}


def _struct_in(kind: Any, assembly: Mapping[str, Any]) -> str | None:
    """Returns the struct of a property's type, also within unions and lists."""
    if isinstance(kind, dict):
        if (name := kind.get("fqn")) in assembly["types"]:
            return str(name)
        for part in kind.values():
            if found := _struct_in(part, assembly):
                return found
    if isinstance(kind, list):
        return next((found for part in kind if (found := _struct_in(part, assembly))), None)
    return None


def _snake(name: str, before: str = "") -> str:
    return re.sub(r"^_", before, re.sub(r"([A-Z]|(?<=[a-z])\d+)", r"_\1", name)).lower()


def _labels(files: list[dict[str, Any]], kind: str) -> Iterator[str]:
    for file in files:
        for block in _blocks(file.get(kind)):
            yield from map(_bare, block)


def _typed_labels(files: list[dict[str, Any]], kind: str) -> Iterator[str]:
    for file in files:
        for block in _blocks(file.get(kind)):
            for resource, bodies in block.items():
                for label in bodies:
                    yield f"{_bare(resource)}.{_bare(label)}"


def _blocks(value: Any) -> list[Any]:
    if value is None:
        return []
    return [block for block in (value if isinstance(value, list) else [value]) if isinstance(block, dict)]


def _bare(label: str) -> str:
    return label.strip('"')


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[-1]), "--schema" in sys.argv[1:-1]))
