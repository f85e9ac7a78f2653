"""Python packages in an environment of their own inside the cache."""

from __future__ import annotations

import sys
from pathlib import Path

from .cache import PeerError, tool


def environment(folder: Path) -> Path:
    """Makes a virtual environment in `folder`; its python."""
    try:
        tool(sys.executable, "-m", "venv", folder)
    except PeerError as error:
        raise PeerError(f"{error}; on Debian, install python3-venv") from None
    return folder / "bin" / "python"


def install(python: Path, *packages: str, dependencies: bool = True) -> None:
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    tool(*pip, *([] if dependencies else ["--no-deps"]), *packages)


def version(python: Path, package: str) -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return tool(python, "-c", code).strip()
