"""Debian packages unpacked into the cache, without installing anything into the system."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from .cache import PeerError, tool

# What a build of C programs never opens: tools of package builders, Fortran, other headers.
UNWANTED = re.compile(r"(m4|auto.*|gfortran.*|libjs-.*|lib(?!openmpi|mpich).*-dev)$")


def unpack(names: list[str], folder: Path) -> str:
    """Unpacks `names` and what they need and the system lacks; the first one's version."""
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        raise PeerError("apt-get and dpkg are not here; this peer comes from Debian's packages")
    simulate = ("apt-get", "install", "--simulate", "--no-install-recommends", *names)
    try:
        plan = tool(*simulate)
    except PeerError:
        if os.geteuid() != 0:
            raise
        tool("apt-get", "update")  # a fresh machine has no package lists yet
        plan = tool(*simulate)
    planned = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")]
    wanted = [*names, *(name for name in planned if not UNWANTED.match(name))]
    packages = folder / "packages"
    packages.mkdir()
    tool("apt-get", "download", *dict.fromkeys(wanted), directory=packages)
    for package in sorted(packages.glob("*.deb")):
        tool("dpkg", "-x", package, folder / "root")
    first = next(packages.glob(f"{names[0]}_*.deb"))
    version = tool("dpkg-deb", "--field", first, "Version").strip()
    shutil.rmtree(packages)
    return re.sub(r"^\d+:|[-+].*$", "", version)
