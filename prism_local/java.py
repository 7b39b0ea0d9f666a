"""Finds a Java suitable for Spark, or says what to install. `python -m prism_local.java` only checks."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from prism_local.faults import StackError

OLDEST = 17
_ADVICE = "install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"


def program() -> str:
    """Returns the path of Spark's `java`: in JAVA_HOME, else the first on the path."""
    home = os.environ.get("JAVA_HOME", "").strip()
    if home:
        candidate = Path(home) / "bin" / "java"
        if not os.access(candidate, os.X_OK):
            raise StackError(f"JAVA_HOME={home} holds no bin/java: correct or unset it, or {_ADVICE}")
        return str(candidate)
    found = shutil.which("java")
    if found is None:
        raise StackError(f"Java was not found: {_ADVICE}")
    return found


def require() -> int:
    """Returns Java's version. Raises StackError if Java is missing or older than 17."""
    found = program()
    try:
        done = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StackError(f"{found} does not run ({error}): {_ADVICE}") from None
    version = parse(done.stderr + done.stdout)
    if done.returncode != 0 or version is None:
        raise StackError(f"{found} is not a working Java: {_ADVICE}")
    if version < OLDEST:
        raise StackError(f"{found} is Java {version}, and Spark needs {OLDEST} or newer: {_ADVICE}")
    return version


def properties(values: Mapping[str, str]) -> str:
    """Returns the text of a properties file. A backslash starts an escape there."""
    return "".join(f"{key}={value}\n" for key, value in values.items()).replace("\\", "\\\\")


def parse(text: str) -> int | None:
    """Reads the feature version from the output of `java -version`: 8 for 1.8.0_392, 17 for 17.0.15."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


def main() -> int:
    """Prints what is wrong with Java, if anything. Returns the exit status."""
    try:
        require()
    except StackError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
