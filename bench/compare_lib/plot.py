"""An SVG of the rows: one panel for each operation and number of ranks, both axes logarithmic.

Written by hand, since the standard library has no plots. Colours are told apart by people with
common colour-vision deficiencies; Carole's lines are black and thick, tuned peers' are dashed.
"""

from __future__ import annotations

import math
from html import escape

from .report import size_text, time_text
from .summary import Row

PANEL_WIDTH, PANEL_HEIGHT = 460, 320
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
LEGEND_COLUMNS, LEGEND_WIDTH, LEGEND_LINE = 4, 235, 22
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c564b", "#7f7f7f")

Points = list[tuple[int, float]]


def svg(rows: list[Row], titles: dict[str, str]) -> str:
    """The whole picture; `titles` maps each system to its name in the legend."""
    sized = [row for row in rows if row.list_name is None and row.bytes > 0]
    panels = {(row.op, row.ranks) for row in sized}
    ops = list(dict.fromkeys(row.op for row in sized))
    ranks = sorted({row.ranks for row in sized})
    styles = _styles(titles)
    lines = [(name, False) for name in titles]
    lines += [(name, True) for name in titles if any(r.tuned and name in r.figures for r in sized)]
    lines = [line for line in lines if not (line[1] and line[0].startswith("carole"))]

    legend_height = 20 + LEGEND_LINE * math.ceil(len(lines) / LEGEND_COLUMNS)
    width = max(PANEL_WIDTH * len(ranks), LEGEND_COLUMNS * LEGEND_WIDTH + 20)
    height = legend_height + PANEL_HEIGHT * len(ops)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for index, (name, tuned) in enumerate(lines):
        x = 20 + LEGEND_WIDTH * (index % LEGEND_COLUMNS)
        y = 20 + LEGEND_LINE * (index // LEGEND_COLUMNS)
        text = escape(titles[name] + (" (tuned)" if tuned else ""))
        out.append(f'<path d="M{x},{y} h30" {_stroke(styles[name], tuned)}/>')
        out.append(f'<text x="{x + 36}" y="{y + 4}">{text}</text>')
    for row_index, op in enumerate(ops):
        for column, number in enumerate(ranks):
            if (op, number) in panels:
                of = [row for row in sized if row.op == op and row.ranks == number]
                x, y = PANEL_WIDTH * column, legend_height + PANEL_HEIGHT * row_index
                out.append(f'<g transform="translate({x},{y})">')
                out += _panel(f"{op}, {number} ranks", of, lines, styles)
                out.append("</g>")
    return "\n".join([*out, "</svg>"]) + "\n"


def _styles(titles: dict[str, str]) -> dict[str, tuple[str, float]]:
    peers = [name for name in titles if not name.startswith("carole")]
    styles = {name: (COLOURS[i % len(COLOURS)], 1.5) for i, name in enumerate(peers)}
    return {"carole": ("#000000", 3.0), "carole-shared": ("#777777", 3.0), **styles}


def _stroke(style: tuple[str, float], tuned: bool) -> str:
    dashes = ' stroke-dasharray="6 4"' if tuned else ""
    return f'fill="none" stroke="{style[0]}" stroke-width="{style[1]}"{dashes}'


def _panel(title: str, rows: list[Row], lines: list[tuple[str, bool]], styles: dict) -> list[str]:
    series: dict[tuple[str, bool], Points] = {}
    for name, tuned in lines:
        points = [
            (row.bytes, row.figures[name].us)
            for row in rows
            if row.tuned == tuned and name in row.figures
        ]
        if points:
            series[name, tuned] = points
    sizes = sorted({row.bytes for row in rows})
    times = [us for points in series.values() for _, us in points]
    if not times:
        return []
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    high = max(high, low + 1)
    first, last = math.log2(sizes[0]), math.log2(sizes[-1])
    across, down = PANEL_WIDTH - LEFT - RIGHT, PANEL_HEIGHT - TOP - BOTTOM

    def x_of(size: int) -> float:
        return LEFT + across * ((math.log2(size) - first) / (last - first) if last > first else 0.5)

    def y_of(us: float) -> float:
        return TOP + down * (high - math.log10(us)) / (high - low)

    middle = LEFT + across / 2
    out = [f'<text x="{middle}" y="{TOP - 14}" text-anchor="middle" font-size="14">{title}</text>']
    for power in range(low, high + 1):
        y = y_of(10.0**power)
        out.append(f'<path d="M{LEFT},{y:.1f} h{across}" stroke="#dddddd"/>')
        text = time_text(10.0**power).replace(".00", "").replace(".0 ", " ").replace("0.10", "0.1")
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    shown = -math.inf
    for size in sizes:
        x = x_of(size)
        out.append(f'<path d="M{x:.1f},{TOP} v{down}" stroke="#eeeeee"/>')
        if x - shown > 48:  # labels must not run into each other
            shown = x
            label = f'x="{x:.1f}" y="{TOP + down + 18}" text-anchor="middle"'
            out.append(f"<text {label}>{size_text(size)}</text>")
    caption = f'x="{middle}" y="{TOP + down + 38}" text-anchor="middle" fill="#555555"'
    out.append(
        f"<text {caption}>size of a rank's tensor; time of one operation, less is better</text>"
    )
    for (name, tuned), points in reversed(series.items()):
        path = "L".join(f"{x_of(size):.1f},{y_of(us):.1f}" for size, us in points)
        out.append(f'<path d="M{path}" {_stroke(styles[name], tuned)}/>')
        for size, us in points:
            spot = f'cx="{x_of(size):.1f}" cy="{y_of(us):.1f}" r="3" fill="{styles[name][0]}"'
            tip = escape(f"{name}{' tuned' if tuned else ''}: {size_text(size)}, {time_text(us)}")
            out.append(f"<circle {spot}><title>{tip}</title></circle>")
    return out
