"""Geometry of plots: inside of their frame, gaps where nothing was, the clock changes in the heat map."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from flask import Flask, g

from app.dashboard import plots
from app.dashboard.plots import Minutes
from app.schedule.zones import zone

START = datetime(2026, 3, 28, 12, tzinfo=UTC)
TIMES = [START + timedelta(minutes=n) for n in range(60)]


@pytest.fixture(autouse=True)
def viewer() -> Iterator[None]:
    with Flask("test").test_request_context():
        g.zone = zone("Europe/Berlin")
        yield


@pytest.mark.parametrize("top", [0, 0.3, 1, 52, 1e9])
def test_bars_stay_inside_and_stack(top: float) -> None:
    plot = Minutes(TIMES).bars("t", "s", [("a", "a", [top / 2] * 60), ("b", "b", [top / 2] * 60)], "")
    for one in plot.series:
        for bar in one.bars:
            assert plot.left <= bar.x <= bar.x + bar.width <= plot.right
            assert plot.top - 0.1 <= bar.y <= bar.y + bar.height <= plot.base + 0.1
    if top:
        low, high = plot.series[0].bars[0], plot.series[1].bars[0]
        assert high.y + high.height == pytest.approx(low.y, abs=0.1)


def test_a_line_has_gaps_and_dots() -> None:
    values: list[float | None] = [None] * 60
    values[3] = values[10] = values[11] = 0.5
    plot = Minutes(TIMES).share("t", "s", "a", "a", values)
    assert re.findall("[ML]", plot.series[0].path) == ["M", "M", "L"]
    assert len(plot.series[0].dots) == 1
    assert [row[0] for row in plot.table] == ["13:11", "13:10", "13:03"]


def test_lateness_from_nothing_to_an_hour_stays_inside() -> None:
    plot = Minutes(TIMES).log("t", "s", [("p", "p", [0.0, 0.001, 2.0, 3600.0] * 15)], (2.0, "2 s"))
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.-]+)", plot.series[0].path)]
    assert plot.top - 20 <= min(heights) <= max(heights) <= plot.base + 0.1
    assert plot.limit is not None


@pytest.mark.parametrize(("value", "top"), [(0, 1), (1, 1), (1.1, 2), (52, 60), (100, 100), (0.003, 0.003)])
def test_scales_end_at_round_numbers(value: float, top: float) -> None:
    assert plots.nice_top(value) == pytest.approx(top)


def test_a_week_with_a_clock_change_has_every_hour_once() -> None:
    values = [1] * 168
    spring = plots.heat(START, values)
    assert sum(cell.value for cell in spring.cells) == 168
    assert len({(cell.x, cell.y) for cell in spring.cells}) == len(spring.cells) == 168
    autumn = plots.heat(datetime(2026, 10, 24, 12, tzinfo=UTC), values)
    assert sum(cell.value for cell in autumn.cells) == 168
    assert len(autumn.cells) == 167  # 02:00 is there twice


def test_levels_of_the_heat_map() -> None:
    grid = plots.heat(START, [0, 1, 25, 100])
    assert [cell.level for cell in grid.cells] == [0, 1, 2, 5]
    assert all(cell.level == 0 for cell in plots.heat(START, [0, 0]).cells)


def test_a_timeline_takes_runs_of_one_instant() -> None:
    run = (START, 0.0, "COMPLETED", "text", "/")
    assert plots.timeline([run]) is None
    made = plots.timeline([run, run])
    assert made is not None
    assert all(made.left <= point.x <= made.right and 0 <= point.y <= made.base for point in made.points)
