"""A schedule as people see it: devices down, time to the right, a colour for each micro-batch."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable, Mapping
from html import escape

from ones_slurm.pipeline.schedule import Op
from ones_slurm.pipeline.spec import Placement

ROW_PX = 26
LABEL_PX = 36
WIDTH_PX = 1200
# Blocks narrower than this carry no text.
TEXT_PX = 14
GOLDEN_ANGLE = 0.381966


def text_rows(placement: Placement, starts: Mapping[Op, float], columns: int) -> list[list[tuple[str, Op | None]]]:
    """For each device, its row in pieces: text and the block it shows (None while idle).

    A block begins with its first letter and its micro-batch, as far as there is room; `.` is idle.
    """
    end = _end(placement, starts)
    rows = []
    for d in range(placement.devices):
        cells: list[Op | None] = [None] * columns
        for i, n in _on(placement, starts, d):
            first = round(starts[i, n] / end * columns)
            last = round((starts[i, n] + placement.blocks[i].time_us) / end * columns)
            for at in range(first, min(max(last, first + 1), columns)):
                cells[at] = (i, n)
        rows.append(_pieces(placement, cells))
    return rows


def plain(placement: Placement, starts: Mapping[Op, float], columns: int) -> str:
    """The picture without colours."""
    width = len(str(placement.devices - 1))
    return "\n".join(
        f"{d:>{width}} |{''.join(text for text, _ in row)}|"
        for d, row in enumerate(text_rows(placement, starts, columns))
    )


def colour(placement: Placement, op: Op) -> tuple[int, int, int]:
    """Hue by micro-batch (neighbours far apart), lighter forwards, darker backwards, weight gradients between."""
    i, n = op
    light = {"forward": 0.78, "backward": 0.52, "input_gradient": 0.52, "weight_gradient": 0.65}[
        placement.blocks[i].kind
    ]
    red, green, blue = colorsys.hls_to_rgb(n * GOLDEN_ANGLE % 1, light, 0.6)
    return round(red * 255), round(green * 255), round(blue * 255)


def svg(placement: Placement, starts: Mapping[Op, float]) -> str:
    """A self-contained SVG; hovering over a block says what it is and when it runs."""
    end = _end(placement, starts)
    scale = WIDTH_PX / end
    height = placement.devices * ROW_PX
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX + LABEL_PX}" height="{height + ROW_PX}"'
        ' font-family="sans-serif" font-size="11">',
        f"<title>{escape(placement.name)}</title>",
    ]
    for d in range(placement.devices):
        y = d * ROW_PX
        parts.append(f'<text x="2" y="{y + 17}">{d}</text>')
        parts.append(f'<rect x="{LABEL_PX}" y="{y + 1}" width="{WIDTH_PX}" height="{ROW_PX - 2}" fill="#eee"/>')
        for i, n in _on(placement, starts, d):
            block = placement.blocks[i]
            x, width = LABEL_PX + starts[i, n] * scale, block.time_us * scale
            red, green, blue = colour(placement, (i, n))
            name = escape(block.name)
            parts.append(
                f'<g><rect x="{x:.2f}" y="{y + 1}" width="{width:.2f}" height="{ROW_PX - 2}"'
                f' fill="rgb({red},{green},{blue})" stroke="#444" stroke-width="0.5"/>'
                f"<title>{name} of micro-batch {n}: {starts[i, n]:g} to {starts[i, n] + block.time_us:g} us</title>"
            )
            if width >= TEXT_PX:
                parts.append(f'<text x="{x + width / 2:.2f}" y="{y + 17}" text-anchor="middle">{n}</text>')
            parts.append("</g>")
    parts.append(f'<text x="{LABEL_PX}" y="{height + 17}">0</text>')
    parts.append(f'<text x="{LABEL_PX + WIDTH_PX}" y="{height + 17}" text-anchor="end">{end:g} us</text>')
    return "\n".join([*parts, "</svg>", ""])


def _pieces(placement: Placement, cells: list[Op | None]) -> list[tuple[str, Op | None]]:
    pieces: list[tuple[str, Op | None]] = []
    at = 0
    while at < len(cells):
        until = at
        while until < len(cells) and cells[until] == cells[at]:
            until += 1
        op = cells[at]
        pieces.append(("." * (until - at) if op is None else _label(placement, op, until - at), op))
        at = until
    return pieces


def _label(placement: Placement, op: Op, width: int) -> str:
    i, n = op
    name = placement.blocks[i].name[0]
    text = next((t for t in (f"{name}{n}", str(n), name) if len(t) <= width), name)
    return text.ljust(width, "-")


def _on(placement: Placement, starts: Mapping[Op, float], device: int) -> Iterable[Op]:
    return sorted((op for op in starts if device in placement.blocks[op[0]].devices), key=lambda op: (starts[op], op))


def _end(placement: Placement, starts: Mapping[Op, float]) -> float:
    return max(start + placement.blocks[i].time_us for (i, _), start in starts.items())
