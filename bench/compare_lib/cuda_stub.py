"""A stand-in for the CUDA libraries that a CPU-only PyTorch loads but never calls.

PyPI's torch is linked against several gigabytes of CUDA libraries. gloo runs on the CPU and needs
none of them, yet the dynamic loader wants each name and each symbol to exist. This module reads
with `nm` and `objdump` which those are and has the C compiler make one small library under all the
missing names, in a folder for LD_LIBRARY_PATH. Nothing of CUDA's is copied: every symbol is one
function that returns an error code.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

IDENTIFIER = re.compile(r"^[A-Za-z_]\w*$")


def _lines(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def _needed(library: Path) -> set[str]:
    """The names of the libraries that `library` is linked against."""
    words = (line.split() for line in _lines("objdump", "-p", str(library)))
    return {pair[1] for pair in words if len(pair) == 2 and pair[0] == "NEEDED"}


def _symbols(library: Path, which: str) -> dict[str, str]:
    """Symbol to version ("" for none) of those `library` has (--defined-only) or lacks."""
    lines = (line.split() for line in _lines("nm", "-D", which, str(library)))
    pairs = (words[-1].replace("@@", "@").partition("@") for words in lines if words)
    return {name: version for name, _, version in pairs}


def _system_libraries() -> dict[str, Path]:
    """Library name to path, as the loader's cache has them."""
    found = {}
    for line in _lines("/sbin/ldconfig", "-p"):
        name, arrow, path = line.strip().partition(" => ")
        if arrow:
            found.setdefault(name.split()[0], Path(path))
    return found


def build(site_packages: Path, folder: Path) -> list[str]:
    """Makes the stand-in for the torch under `site_packages` in `folder`; the names it covers."""
    torch_libraries = sorted((site_packages / "torch" / "lib").glob("*.so*"))
    present = {path.name: path for path in site_packages.glob("nvidia/**/lib/*.so*")}
    present |= {path.name: path for path in torch_libraries}
    system = _system_libraries()

    needed = set().union(*(_needed(library) for library in torch_libraries))
    missing = sorted(needed - present.keys() - system.keys())
    folder.mkdir(parents=True, exist_ok=True)
    if not missing:
        return []

    wanted: dict[str, str] = {}
    for library in torch_libraries:
        wanted |= _symbols(library, "--undefined-only")
    for path in [*present.values(), *(system[name] for name in needed & system.keys())]:
        for name in _symbols(path, "--defined-only"):
            wanted.pop(name, None)
    names = sorted(name for name in wanted if IDENTIFIER.match(name))

    source, versions = folder / "stub.c", folder / "stub.map"
    aliases = (f'int {name}(void) __attribute__((alias("carole_stub")));' for name in names)
    source.write_text("int carole_stub(void) { return 1; }\n" + "\n".join(aliases) + "\n")
    nodes = sorted({wanted[name] for name in names} - {""})
    members = ("; ".join(name for name in names if wanted[name] == node) for node in nodes)
    versions.write_text("".join(f"{n} {{ {m}; }};\n" for n, m in zip(nodes, members, strict=True)))
    library = folder / "libcarole_stub.so"
    command = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", f"-Wl,--version-script={versions}"]
    subprocess.run([*command, "-o", str(library), str(source)], check=True, capture_output=True)
    for name in missing:
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(library.name)
    return missing
