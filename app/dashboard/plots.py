"""Geometry of the SVG plots: values in, coordinates and labels out. Templates draw them; colours are the stylesheet's.

All numbers are units of a viewBox, so a plot fits whatever width it is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from app.dashboard import formats, session

WIDTH, HEIGHT = 480, 150
LEFT, RIGHT, TOP, BOTTOM = 66, 6, 8, 22
_BASE = HEIGHT - BOTTOM
_TALL = _BASE - TOP
_WIDE = WIDTH - LEFT - RIGHT

Values = Sequence[float | None]


@dataclass
class Tick:
    at: float
    text: str


@dataclass
class Bar:
    x: float
    y: float
    width: float
    height: float


@dataclass
class Series:
    """One row of marks; `name` is its class in the stylesheet, too."""

    name: str
    label: str
    bars: list[Bar] = field(default_factory=list)
    path: str = ""
    dots: list[tuple[float, float]] = field(default_factory=list)


@dataclass
class Column:
    """One minute: where the pointer finds it, and what it says."""

    x: float
    width: float
    text: str


@dataclass
class Plot:
    title: str
    summary: str
    series: list[Series]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    columns: list[Column]
    table: list[list[str]]
    heads: list[str]
    limit: Tick | None = None
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    base: int = _BASE
    top: int = TOP


class Minutes:
    """The common part of the plots of one stretch of minutes."""

    def __init__(self, times: Sequence[datetime]) -> None:
        self.times = times
        self.step = _WIDE / max(1, len(times))
        where = session.viewer_zone()
        self.names = [f"{at.astimezone(where):%H:%M}" for at in times]
        self._x_ticks = [
            Tick(round(self.centre(n), 1), name)
            for n, name in enumerate(self.names)
            if name[-2:] in ("00", "15", "30", "45")
        ]

    def centre(self, n: int) -> float:
        return LEFT + self.step * (n + 0.5)

    def bars(self, title: str, summary: str, rows: Sequence[tuple[str, str, Values]], unit: str) -> Plot:
        """Bars, several rows of values stacked."""
        sums = [sum(values[n] or 0 for _, _, values in rows) for n in range(len(self.times))]
        top = nice_top(max(sums, default=0))
        below = [0.0] * len(self.times)
        series = []
        for name, label, values in rows:
            one = Series(name, label)
            for n, value in enumerate(values):
                if value:
                    height = value / top * _TALL
                    y = _BASE - (below[n] / top * _TALL) - height
                    one.bars.append(Bar(*_rounded(LEFT + self.step * n + 0.6, y, self.step - 1.2, height)))
                    below[n] += value
            series.append(one)
        ticks = [Tick(round(_BASE - share * _TALL, 1), formats.count(top * share)) for share in (0, 0.5, 1)]
        return self._plot(title, summary, series, ticks, rows, lambda value: f"{formats.count(value)}{unit}")

    def share(self, title: str, summary: str, name: str, label: str, values: Values) -> Plot:
        """A line of shares; the scale shows what is missing to 100 %."""
        lowest = min((value for value in values if value is not None), default=1.0)
        floor = next((edge for edge in (0.99, 0.9, 0.5, 0.0) if lowest >= edge), 0.0)

        def y(value: float) -> float:
            return _BASE - (value - floor) / (1 - floor) * _TALL

        ticks = [
            Tick(round(y(edge), 1), f"{edge * 100:.3f}".rstrip("0").rstrip(".") + " %")
            for edge in (floor, (1 + floor) / 2, 1)
        ]
        return self._plot(
            title, summary, [self._line(name, label, values, y)], ticks, [(name, label, values)], formats.share
        )

    def log(
        self, title: str, summary: str, rows: Sequence[tuple[str, str, Values]], limit: tuple[float, str] | None = None
    ) -> Plot:
        """Lines of seconds on a logarithmic scale from 1 ms on."""
        largest = max((value for _, _, values in rows for value in values if value is not None), default=0)
        top = next((edge for edge in (1.0, 10.0, 100.0) if max(largest, limit[0] if limit else 0) <= edge), 1000.0)
        low = math.log10(0.001)

        def y(value: float) -> float:
            return _BASE - (math.log10(max(value, 0.001)) - low) / (math.log10(top) - low) * _TALL

        edges = [10.0**power for power in range(-3, round(math.log10(top)) + 1)]
        ticks = [Tick(round(y(edge), 1), formats.span(edge)) for edge in edges]
        series = [self._line(name, label, values, y) for name, label, values in rows]
        plot = self._plot(title, summary, series, ticks, rows, formats.span)
        if limit:
            plot.limit = Tick(round(y(limit[0]), 1), limit[1])
        return plot

    def _line(self, name: str, label: str, values: Values, y: Callable[[float], float]) -> Series:
        """A path with gaps where there is no value; a value alone between gaps is a dot."""
        one, steps = Series(name, label), []
        for n, value in enumerate(values):
            if value is None:
                continue
            x, height = round(self.centre(n), 1), round(y(value), 1)
            joined = n > 0 and values[n - 1] is not None
            steps.append(f"{'L' if joined else 'M'}{x} {height}")
            if not joined and (n + 1 == len(values) or values[n + 1] is None):
                one.dots.append((x, height))
        one.path = " ".join(steps)
        return one

    def _plot(
        self,
        title: str,
        summary: str,
        series: list[Series],
        y_ticks: list[Tick],
        rows: Sequence[tuple[str, str, Values]],
        say: Callable[[float | None], str],
    ) -> Plot:
        columns, table = [], []
        for n, name in enumerate(self.names):
            if all(values[n] is None for _, _, values in rows):
                continue
            said = [say(values[n]) for _, _, values in rows]
            facts = ", ".join(f"{label} {text}" for (_, label, _), text in zip(rows, said, strict=True))
            columns.append(Column(round(LEFT + self.step * n, 1), round(self.step, 1), f"{name}: {facts}"))
            table.append([name, *said])
        heads = ["Minute", *(label for _, label, _ in rows)]
        return Plot(title, summary, series, self._x_ticks, y_ticks, columns, table[::-1], heads)


def nice_top(value: float) -> float:
    """The smallest round number that is not below a value; 1 for nothing."""
    if value <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 3, 4, 6, 8, 10) if value <= power * step * (1 + 1e-9))


def _rounded(*values: float) -> tuple[float, ...]:
    return tuple(round(value, 2) for value in values)


@dataclass
class Cell:
    x: float
    y: float
    level: int
    text: str
    value: int


@dataclass
class Grid:
    """A calendar: a row a day, a column an hour, in the viewer's zone."""

    days: list[Tick]
    hours: list[Tick]
    cells: list[Cell]
    most: int
    width: int = 0
    height: int = 0
    cell: float = 0


LEVELS = 5


def heat(start: datetime, values: Sequence[int]) -> Grid:
    """The starts of the hours from `start` on, the darker the more, by the square root: herds do not hide the rest."""
    where, size, left, top = session.viewer_zone(), 26.0, 78, 20
    most = max(values, default=0)
    first = start.astimezone(where).date()
    cells: list[Cell] = []
    days: dict[int, str] = {}
    places: dict[tuple[int, int], Cell] = {}
    for n, value in enumerate(values):
        local = (start + timedelta(hours=n)).astimezone(where)
        day = (local.date() - first).days
        days.setdefault(day, f"{local:%a %d %b}")
        known = places.get((day, local.hour))
        if known is not None:  # the clock goes back: the hour is there twice
            known.value += value
        else:
            known = Cell(left + local.hour * size, top + day * size, 0, "", value)
            places[day, local.hour] = known
            cells.append(known)
        known.level = _level(known.value, most)
        known.text = f"{local:%a %d %b %H}:00, {formats.plural(known.value, 'start')}"
    ticks = [Tick(top + day * size + size / 2, name) for day, name in days.items()]
    hours = [Tick(left + hour * size + size / 2, f"{hour:02}") for hour in range(0, 24, 3)]
    return Grid(ticks, hours, cells, most, round(left + 24 * size + 2), round(top + len(days) * size + 2), size)


def _level(value: int, most: int) -> int:
    if value == 0:
        return 0
    return max(1, round(LEVELS * math.sqrt(value / most)))


@dataclass
class Point:
    x: float
    y: float
    status: str
    text: str
    href: str


@dataclass
class Timeline:
    """Runs of one job: left to right in time, the higher the longer they took."""

    points: list[Point]
    x_ticks: list[Tick]
    y_ticks: list[Tick]
    width: int = 960
    height: int = 130
    left: int = LEFT
    right: int = 960 - RIGHT
    base: int = 108


def timeline(runs: Sequence[tuple[datetime, float, str, str, str]]) -> Timeline | None:
    """Of (time, seconds taken, status, text, address); None for fewer than two."""
    if len(runs) < 2:
        return None
    runs = sorted(runs)
    first, last = runs[0][0], runs[-1][0]
    whole = max((last - first) / timedelta(seconds=1), 1e-6)
    made = Timeline([], [], [])
    wide, tall = made.right - made.left - 20, made.base - 14
    durations = [max(seconds, 0.001) for _, seconds, _, _, _ in runs]
    low = 10.0 ** math.floor(math.log10(min(durations)))
    high = max(10.0 ** math.ceil(math.log10(max(durations)) - 1e-9), low * 10)

    def y(seconds: float) -> float:
        return made.base - math.log10(max(seconds, low) / low) / math.log10(high / low) * tall

    for (at, _, status, text, href), seconds in zip(runs, durations, strict=True):
        x = made.left + 10 + (at - first) / timedelta(seconds=1) / whole * wide
        made.points.append(Point(round(x, 1), round(y(seconds), 1), status, text, href))
    made.y_ticks = [Tick(round(y(edge), 1), formats.span(edge)) for edge in (low, high)]
    where = session.viewer_zone()
    form = "%H:%M:%S" if whole < 600 else "%H:%M" if whole < 86_400 else "%d %b %H:%M"
    made.x_ticks = [
        Tick(round(made.left + 10 + part * wide, 1), f"{(first + (last - first) * part).astimezone(where):{form}}")
        for part in (0, 1 / 3, 2 / 3, 1)
    ]
    return made
