"""The table that a person reads."""

from __future__ import annotations

from statistics import median

from .summary import Row

WIDTH = 10
UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def size_text(size: int) -> str:
    for unit, name in UNITS:
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(us: float) -> str:
    """Three significant digits, in the unit that suits."""
    for limit, factor, unit in ((1e3, 1, "µs"), (1e6, 1e3, "ms")):
        if us < limit * 0.9995:
            return f"{_three(us / factor)} {unit}"
    return f"{_three(us / 1e6)} s"


def _three(number: float) -> str:
    return f"{number:.2f}" if number < 10 else f"{number:.1f}" if number < 100 else f"{number:.0f}"


def _cell(row: Row, name: str) -> str:
    figure = row.figures.get(name)
    if not figure:
        return "-"
    mark = "*" if name == row.best_peer() else ""
    way = f" {figure.way[0]}" if figure.way else ""
    return f"{mark}{time_text(figure.us)}{way}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _ratio(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}"


def table(rows: list[Row], columns: dict[str, tuple[str, str]], notes: list[str]) -> str:
    """All rows, by operation and ranks. `columns`: system to its two lines of heading."""
    shared = "carole-shared" in columns
    out = []
    for op, ranks in dict.fromkeys((row.list_name or row.op, row.ranks) for row in rows):
        of_case = [row for row in rows if (row.list_name or row.op, row.ranks) == (op, ranks)]
        out += ["", f"{op}, {ranks} ranks"]
        tail = ["best/", "best/" if shared else None, "limit:", "limit:", "flag µs"]
        tail_2 = ["carole", "shared" if shared else None, "carole", "best", "min-med-max"]
        for part, rest in ((0, tail), (1, tail_2)):
            words = [heading[part].rjust(WIDTH) for heading in columns.values()]
            words += [word.rjust(7) for word in rest if word]
            out.append(f"{'':15}" + " ".join(words))
        for row in of_case:
            out.append(_line(row, list(columns), shared))
    out += [
        "",
        "* the best peer. best/carole above 1: Carole is faster. limit: share of the copy limit.",
    ]
    if any(row.tuned for row in rows):
        out.append("tuned: peers run with MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=99999999999.")
    if any(row.list_name for row in rows):
        out.append("lists: each peer's best way: e one by one, b all at once, f fused.")
    return "\n".join([*out, *(f"! {note}" for note in notes)]) + "\n"


def _line(row: Row, names: list[str], shared: bool) -> str:
    label = f"{row.bytes / 1e6:.0f} MB" if row.list_name else size_text(row.bytes)
    label = f"{label} tuned" if row.tuned else label
    words = [_cell(row, name).rjust(WIDTH) for name in names]
    words.append(_ratio(row.ratio("carole")).rjust(7))
    if shared:
        words.append(_ratio(row.ratio("carole-shared")).rjust(7))
    words += [_share(row.share(name)).rjust(7) for name in ("carole", row.best_peer())]
    flag = "-" if not row.flag_us else "-".join(f"{us:.2f}" for us in row.flag_us)
    distance = "" if row.distance == "any" else f" {row.distance}"
    return f"{label:15}" + " ".join(words) + f"  {flag}{distance}"


def limits_text(flags: list[dict], copies: list[dict]) -> str:
    """What the machine allowed during the run."""
    lines = []
    if flags:
        low, high = min(f["min"] for f in flags), max(f["median"] for f in flags)
        middle = median(f["median"] for f in flags)
        lines.append(
            f"flag between two cores: min {low:.3f} µs, median {middle:.3f} µs, "
            f"highest median {high:.3f} µs, over {len(flags)} looks"
        )
    for threads, size in sorted({(copy["threads"], copy["bytes"]) for copy in copies}):
        of = [c for c in copies if (c["threads"], c["bytes"]) == (threads, size)]
        rates = f"plain {median(c['plain_gbps'] for c in of):.1f}"
        if "nontemporal_gbps" in of[0]:
            rates += f", non-temporal {median(c['nontemporal_gbps'] for c in of):.1f}"
        cores = "1 core" if threads == 1 else f"{threads} cores"
        lines.append(f"copy of {size_text(size)} on {cores}: {rates} GB/s")
    return "\n".join(lines)
