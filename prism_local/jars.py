"""The jars of the local stack, and the archive of Trino's server, fetched once by the Ivy that ships with pyspark.

They are stored in `~/.cache/prism_assets/jars` for all stacks of a user, or in the stack's `cache/jars` if the user's
home is not writable. PRISM_CACHE replaces both. A jar is accepted only with the size and hash given here. `python -m
prism_local.jars` fetches missing jars.
"""

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from prism_assets.domain.errors import PrismError
from prism_local import java
from prism_local.faults import StackError
from prism_local.layout import Layout, default_root


@dataclass(frozen=True)
class Jar:
    """One jar: its coordinates, and its content by size and SHA-256."""

    organisation: str
    artifact: str
    revision: str
    size: int
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """Ivy's file name for the jar."""
        suffix = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.revision}{suffix}.{self.extension}"


JARS = {
    "s3proxy": Jar(
        "org.gaul",
        "s3proxy",
        "4.1.0",
        54_955_934,
        "a4d025969aaf796616ed4b1e2491d87d455ce84bb28cb9db086b2e6aaa68b48d",
        "jar-with-dependencies",
    ),
    "iceberg": Jar(
        "org.apache.iceberg",
        "iceberg-spark-runtime-4.1_2.13",
        "1.12.0",
        48_309_426,
        "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
    ),
    "iceberg-aws": Jar(
        "org.apache.iceberg",
        "iceberg-aws-bundle",
        "1.12.0",
        69_034_612,
        "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
    ),
    "postgresql": Jar(
        "org.postgresql",
        "postgresql",
        "42.7.14",
        1_221_004,
        "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c",
    ),
}
FOR_SPARK = ("iceberg", "iceberg-aws", "postgresql")


def folders(place: Layout) -> list[Path]:
    """Returns the folders to search for jars. New ones go to the first writable folder."""
    if named := os.environ.get("PRISM_CACHE"):
        return [Path(named).absolute() / "jars"]
    found = [place.root.absolute() / "cache" / "jars"]
    with suppress(RuntimeError):  # an account without a home
        found.insert(0, Path.home() / ".cache" / "prism_assets" / "jars")
    return found


def path(name: str, place: Layout) -> Path:
    """Returns the path of a jar, present or not."""
    return _path(JARS[name], place)


def _path(jar: Jar, place: Layout) -> Path:
    places = [folder / jar.file_name for folder in folders(place)]
    return next((file for file in places if _has_size(file, jar.size)), places[0])


def missing(place: Layout) -> list[str]:
    """Returns the names of missing or incomplete jars. Checks only the size, because hashing takes time."""
    return [name for name, jar in JARS.items() if not _has_size(path(name, place), jar.size)]


def _has_size(file: Path, size: int) -> bool:
    with suppress(OSError):
        return file.is_file() and file.stat().st_size == size
    return False


def ensure(place: Layout) -> list[str]:
    """Fetches missing jars and verifies them. Stores each one atomically. Returns their names."""
    names = missing(place)
    _fetch([JARS[name] for name in names], place)
    return names


def ensure_jar(jar: Jar, place: Layout) -> Path:
    """Returns the path of a jar for benchmarks and readers, and fetches it first if it is missing."""
    return ensure_all([jar], place)[0]


def ensure_all(wanted: Sequence[Jar], place: Layout) -> list[Path]:
    """Returns the paths of jars of one service. Fetches missing ones first."""
    _fetch(wanted, place)
    return [_path(jar, place) for jar in wanted]


def _are_present(wanted: Iterable[Jar], place: Layout) -> bool:
    """Whether no jar is missing or incomplete."""
    return all(_has_size(_path(jar, place), jar.size) for jar in wanted)


def _fetch(jars: Iterable[Jar], place: Layout) -> None:
    if _are_present(jars, place):
        return
    java.require()
    target = _writable(place)
    try:
        with _locked(target / ".lock"), tempfile.TemporaryDirectory(dir=target, prefix=".new-") as work:
            # another process may have fetched them meanwhile
            lacking = [jar for jar in jars if not _has_size(_path(jar, place), jar.size)]
            if lacking:
                _resolve(lacking, Path(work))
                for jar in lacking:
                    _accept(jar, Path(work) / jar.file_name, target)
    except OSError as error:
        raise _cannot_store(target, error) from None


def _writable(place: Layout) -> Path:
    """Returns the first writable folder for jars, and creates it. Raises StackError if there is none."""
    for target in folders(place):
        try:
            target.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=target).close()
        except OSError as error:
            refusal = _cannot_store(target, error)
        else:
            return target
    raise refusal


def _cannot_store(target: Path, error: OSError) -> StackError:
    return StackError(f"cannot store the jars in {target}: {error.strerror}; name another with PRISM_CACHE")


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with open(file, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _accept(jar: Jar, fetched: Path, target: Path) -> None:
    if not fetched.is_file():
        raise StackError(f"{jar.file_name} was not found: check the network, then run the command again")
    with open(fetched, "rb") as content:
        digest = hashlib.sha256()
        while block := content.read(1 << 20):
            digest.update(block)
    if digest.hexdigest() != jar.sha256:
        raise StackError(f"{jar.file_name} has unexpected content: find out why before you use it")
    os.replace(fetched, target / jar.file_name)


def _resolve(jars: list[Jar], work: Path) -> None:
    description = work / "ivy.xml"
    description.write_text(_description(jars), encoding="utf-8")
    pattern = f"{work}/[artifact]-[revision](-[classifier]).[ext]"
    # By default Ivy writes to the user's home, which may not be writable.
    command = [java.program(), f"-Divy.default.ivy.user.dir={work / 'user'}", "-cp", _ivy(), "org.apache.ivy.Main"]
    command += ["-m2compatible", "-warn"]
    command += ["-ivy", str(description), "-cache", str(work / "cache"), "-retrieve", pattern]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = " ".join((done.stderr + done.stdout).split()[-40:])
        raise StackError(f"the jars could not be fetched: check the network and try again; Ivy says: {reason}")


def _ivy() -> str:
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    found = [file for name in ("ivy-*.jar", "commons-cli-*.jar") for file in sorted(jars.glob(name))]
    return os.pathsep.join(str(file) for file in found)


def _description(jars: list[Jar]) -> str:
    dependencies = "\n".join(_dependency(jar) for jar in jars)
    return f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="prism_assets" module="local"/>
<configurations><conf name="default"/></configurations>
<dependencies>
{dependencies}
</dependencies>
</ivy-module>
"""


def _dependency(jar: Jar) -> str:
    start = (
        f'<dependency org="{jar.organisation}" name="{jar.artifact}" rev="{jar.revision}" '
        'transitive="false" conf="default-&gt;master"'
    )
    if not jar.classifier and jar.extension == "jar":
        return start + "/>"
    classifier = f' m:classifier="{jar.classifier}"' if jar.classifier else ""
    artifact = f'<artifact name="{jar.artifact}" type="{jar.extension}" ext="{jar.extension}"{classifier}/>'
    return f"{start}>{artifact}</dependency>"


def main() -> int:
    """Fetches missing jars with a message. Returns the exit status."""
    place = Layout(default_root())
    absent = missing(place)
    try:
        if absent:
            print(f"Fetching {len(absent)} jars (170 MB at most) into {_writable(place)} ...", flush=True)
        ensure(place)
    except PrismError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
