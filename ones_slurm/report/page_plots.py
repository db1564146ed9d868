"""Pictures for a page, as inline SVG in an HTML frame: no library, no image, no link.

The drawing stretches with the page and the words beside it do not: so text has the same size on a phone, on a wide
screen and on paper. Colours are classes (`c0` …), which the style sheet gives in light and in dark.
"""

import math
import re
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from markupsafe import Markup

COLOURS = 10
# A drawing is so many units wide and high; stretched to the frame.
UNITS = 1000.0
# Ours: above so many boxes each colour becomes one path, without a name on each box, or browsers crawl.
MOST_NAMED = 4000
# Ours: more beside a picture would run into each other.
MOST_LABELS = 16
# Ours: a box wider than this share of the picture has room for its name on a laptop; narrower ones have a tooltip.
_ROOM_FOR_A_NAME = 0.05

_TIME_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_DURATIONS = (
    *((seconds, f"{seconds} s") for seconds in (1, 2, 5, 10, 20, 30)),
    *((60 * minutes, f"{minutes} min") for minutes in (1, 2, 5, 10, 20, 30)),
    *((3600 * hours, f"{hours} h") for hours in (1, 2, 5, 12)),
    *((86400 * days, f"{days} d") for days in (1, 2, 5, 10, 30, 100, 365)),
)


class Axis(msgspec.Struct, frozen=True):
    """From `low` to `high`, with its ticks as (where, label); `log` for ratios."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    title: str = ""
    log: bool = False

    def share(self, at: float) -> float:
        """Where `at` lies between low and high, from 0 to 1."""
        if self.log:
            low, high, at = math.log(self.low), math.log(self.high), math.log(max(at, self.low))
        else:
            low, high = self.low, self.high
        return min(max((at - low) / (high - low), 0.0), 1.0)


class Box(msgspec.Struct, frozen=True, kw_only=True):
    """A rectangle: from `from_x` to `until_x`, so many rows high above `row`, in colour, with a name and a tooltip."""

    from_x: float
    until_x: float
    row: float
    rows: float
    colour: int
    name: str = ""
    says: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Points of one line; `step` keeps each value until the next point, a None in y is a gap.

    `dashes` is 0 for a whole line; others are kinds of broken ones, told apart where they cover each other.
    """

    points: Sequence[tuple[float, float | None]]
    colour: int
    name: str = ""
    step: bool = False
    dashes: int = 0
    filled: bool = False


def colour_of(name: str) -> int:
    """The same colour for a job in every picture and on every page; neighbours in number differ."""
    numbers = [int(digits) for digits in re.findall(r"[0-9]+", name)]
    return sum(numbers) % COLOURS


def time_axis(low_s: float, high_s: float, ticks: int = 6) -> Axis:
    """Local times; a tick at round ones."""
    high_s = max(high_s, low_s + 1.0)
    span_s = high_s - low_s
    days = math.ceil(span_s / ticks / 86400)
    step_s = next((step for step in _TIME_STEPS_S if span_s / step <= ticks), days * 86400)
    offset_s = datetime.fromtimestamp(low_s).astimezone().utcoffset().total_seconds()  # type: ignore[union-attr]
    form = "%H:%M:%S" if step_s < 60 else "%H:%M" if span_s <= 86400 else "%d %b %H:%M" if step_s < 86400 else "%d %b"
    first = math.ceil((low_s + offset_s) / step_s) * step_s - offset_s
    at = [first + step_s * number for number in range(int((high_s - first) // step_s) + 1)]
    return Axis(low_s, high_s, tuple((s, datetime.fromtimestamp(s).strftime(form)) for s in at))


def duration_axis(low_s: float, high_s: float, title: str) -> Axis:
    """Durations by their ratios, with ticks at round ones."""
    low_s = max(low_s, 1.0)
    below = max((s for s, _ in _DURATIONS if s <= low_s), default=1)
    above = next((s for s, _ in _DURATIONS if s >= high_s and s > below), high_s)
    inside = [tick for tick in _DURATIONS if below <= tick[0] <= above]
    every = -(-len(inside) // 7)
    return Axis(below, above, tuple(inside[::every]), title, log=True)


def number_axis(high: float, title: str, *, ticks: int = 4, whole: bool = False) -> Axis:
    """From 0 to a round number at or above `high`."""
    if high <= 0:
        high = 1.0
    power = 10.0 ** math.floor(math.log10(high / ticks))
    step = next(power * times for times in (1, 2, 2.5, 5, 10) if power * times * ticks >= high * 0.9999)
    if whole:
        step = max(math.ceil(step), 1)
    count = math.ceil(high / step * 0.9999)
    at = [step * number for number in range(count + 1)]
    return Axis(0.0, step * count, tuple((value, f"{value:g}") for value in at), title)


def ratio_axis(low: float, high: float, title: str) -> Axis:
    """Doublings: for batch sizes."""
    first, last = math.floor(math.log2(max(low, 1))) - 1, math.ceil(math.log2(max(high, 1))) + 1
    every = -(-(last - first + 1) // 5)
    at = [2**power for power in range(first, last + 1, every)]
    return Axis(float(2**first), float(2**last), tuple((float(value), str(value)) for value in at), title, log=True)


def value_axis(low: float, high: float, title: str) -> Axis:
    """Any numbers, from a round one below to a round one above; by powers of ten where they span more than one."""
    if low > 0 and high > 20 * low:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        every = -(-len(powers) // 5)
        ticks = tuple((10.0**power, f"{10.0**power:g}") for power in powers[::every])
        return Axis(10.0 ** powers[0], 10.0 ** powers[-1], ticks, title, log=True)
    if not high > low:
        low, high = low - 0.5, high + 0.5
    power = 10.0 ** math.floor(math.log10((high - low) / 3))
    step = next(power * times for times in (1, 2, 5, 10) if power * times * 3 >= (high - low) * 0.9999)
    first = math.floor(low / step)
    at = [step * number for number in range(first, math.ceil(high / step) + 1)]
    return Axis(at[0], at[-1], tuple((value, f"{round(value, 9):g}") for value in at), title)


def boxes_picture(
    boxes: Sequence[Box], x: Axis, rows: int, labels: Sequence[tuple[float, str]], *, says: str
) -> Markup:
    """Boxes on rows (a Gantt chart); `labels` stand beside them at so many rows from the top, as many as there is room
    for."""
    count = max(rows, 1)
    named = len(boxes) <= MOST_NAMED
    shapes = _each_box(boxes, x, count) if named else _paths(boxes, x, count)
    words = []
    for box in boxes if named else ():
        left, right = x.share(box.from_x), x.share(box.until_x)
        if box.name and right - left >= _ROOM_FOR_A_NAME:
            words.append(
                Markup(
                    '<span class="in" style="left:{:.2f}%;width:{:.2f}%;top:{:.2f}%;height:{:.2f}%">{}</span>'
                ).format(100 * left, 100 * (right - left), 100 * box.row / count, 100 * box.rows / count, box.name)
            )
    every = -(-len(labels) // MOST_LABELS)
    beside = [(100 * row / count, label) for row, label in labels[::every]] if labels else []
    height_px = min(max(22 * count, 90), 420)
    rules = "".join(_rule(0, UNITS * row / count, UNITS, UNITS * row / count) for row in range(count + 1))
    return _frame(
        Markup(rules) + shapes, x, beside, y_title="", height_px=height_px, says=says, over=Markup("").join(words)
    )


def lines_picture(
    lines: Sequence[Line], x: Axis, y: Axis, *, says: str, height_px: int = 200, legend: bool = True
) -> Markup:
    """Lines over a grid, with their names below."""
    grid = "".join(_rule(0, UNITS * (1 - y.share(at)), UNITS, UNITS * (1 - y.share(at))) for at, _ in y.ticks)
    drawn = Markup("").join(_line(line, x, y) for line in lines)
    labels = [(100 * (1 - y.share(at)), label) for at, label in y.ticks]
    picture = _frame(Markup(grid) + drawn, x, labels, y_title=y.title, height_px=height_px, says=says, over=Markup(""))
    return picture + (_legend(lines) if legend else Markup(""))


def bars_picture(bars: Sequence[tuple[str, float, str, str]], *, says: str) -> Markup:
    """Lying bars: (name, length, what is written at its end, what it means)."""
    longest = max((length for _, length, _, _ in bars), default=0.0) or 1.0
    lines = [
        Markup(
            '<tr><th scope="row" title="{3}">{0}</th><td><svg viewBox="0 0 100 10" preserveAspectRatio="none" '
            'aria-hidden="true"><rect class="c{4}" width="{1:.3f}" height="10"/></svg></td><td class="n">{2}</td></tr>'
        ).format(name, 100 * length / longest, value, what, number % COLOURS)
        for number, (name, length, value, what) in enumerate(bars)
    ]
    return Markup('<table class="bars" aria-label="{}">{}</table>').format(says, Markup("").join(lines))


def _frame(
    inside: Markup,
    x: Axis,
    y_labels: Iterable[tuple[float, str]],
    *,
    y_title: str,
    height_px: int,
    says: str,
    over: Markup,
) -> Markup:
    """The drawing `inside`, words `over` it, and the labels of both axes (`y_labels`: percent from the top)."""
    across = "".join(_rule(UNITS * x.share(at), 0, UNITS * x.share(at), UNITS) for at, _ in x.ticks)
    xs = Markup("").join(
        Markup('<span class="{}" style="left:{:.2f}%">{}</span>').format(
            _place(number, x.share(at)), 100 * x.share(at), label
        )
        for number, (at, label) in enumerate(x.ticks)
    )
    ys = Markup("").join(Markup('<span style="top:{:.2f}%">{}</span>').format(top, label) for top, label in y_labels)
    return Markup(
        '<div class="plot" role="img" aria-label="{says}">{title}<div class="y" style="height:{height}px">{ys}</div>'
        '<div class="area" style="height:{height}px"><svg viewBox="0 0 1000 1000" preserveAspectRatio="none" '
        'aria-hidden="true"><g class="grid">{across}</g>{inside}</svg>{over}</div>'
        '<div class="x">{xs}</div>{xtitle}</div>'
    ).format(
        says=says,
        title=Markup('<div class="yt">{}</div>').format(y_title) if y_title else "",
        height=height_px,
        ys=ys,
        across=Markup(across),
        inside=inside,
        over=over,
        xs=xs,
        xtitle=Markup('<div class="xt">{}</div>').format(x.title) if x.title else "",
    )


def _place(number: int, share: float) -> str:
    """The classes of a label below: every second one goes on a phone, and none hangs over an end of the picture."""
    return ("odd" if number % 2 else "even") + (" first" if share < 0.03 else " last" if share > 0.97 else "")


def _each_box(boxes: Iterable[Box], x: Axis, rows: int) -> Markup:
    return Markup("").join(
        Markup(
            '<rect class="box c{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"><title>{}</title></rect>'
        ).format(box.colour, *_corners(box, x, rows), box.says)
        for box in boxes
    )


def _paths(boxes: Iterable[Box], x: Axis, rows: int) -> Markup:
    by_colour: dict[int, list[str]] = {}
    for box in boxes:
        left, top, width, height = _corners(box, x, rows)
        by_colour.setdefault(box.colour, []).append(f"M{left:.1f} {top:.1f}h{width:.2f}v{height:.1f}h{-width:.2f}z")
    return Markup("").join(
        Markup('<path class="c{}" d="{}"/>').format(colour, "".join(paths)) for colour, paths in by_colour.items()
    )


def _corners(box: Box, x: Axis, rows: int) -> tuple[float, float, float, float]:
    left, right = UNITS * x.share(box.from_x), UNITS * x.share(box.until_x)
    return left, UNITS * box.row / rows, max(right - left, 0.5), UNITS * box.rows / rows


def _line(line: Line, x: Axis, y: Axis) -> Markup:
    pieces: list[list[tuple[float, float]]] = [[]]
    for at, value in line.points:
        if value is None:
            pieces.append([])
            continue
        here = (UNITS * x.share(at), UNITS * (1 - y.share(value)))
        if line.step and pieces[-1]:
            pieces[-1].append((here[0], pieces[-1][-1][1]))
        pieces[-1].append(here)
    drawn = []
    for piece in filter(None, pieces):
        path = "M" + "L".join(f"{left:.1f} {top:.1f}" for left, top in piece)
        if line.filled:
            under = f"{path}L{piece[-1][0]:.1f} 1000L{piece[0][0]:.1f} 1000z"
            drawn.append(Markup('<path class="under c{}" d="{}"/>').format(line.colour, under))
        drawn.append(
            Markup('<path class="line s{} d{}" d="{}"><title>{}</title></path>').format(
                line.colour, line.dashes, path, line.name
            )
        )
    return Markup("").join(drawn)


def _legend(lines: Iterable[Line]) -> Markup:
    items = Markup("").join(
        Markup(
            '<li><svg viewBox="0 0 20 10" aria-hidden="true"><path class="line s{} d{}" d="M0 5H20"/></svg>{}</li>'
        ).format(line.colour, line.dashes, line.name)
        for line in lines
        if line.name
    )
    return Markup('<ul class="legend">{}</ul>').format(items)


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<path class="rule" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'
