"""Margins of figures: whatever the labels, matplotlib itself finds none outside and none on another."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Canvas

from cluster_sim.report.figures import STYLE, lines_of, name_rows
from cluster_sim.report.margins import POINTS_PER_IN, legend_above, place_panels


def plain(panels: Sequence[Axes]) -> None:
    for axes, top in zip(panels, (1.0, 123456.0, 0.00012), strict=True):
        axes.plot([0, 1000], [0, top])
        axes.set(title="A panel", xlabel="Requests", ylabel="Number")


def with_a_right_axis(panels: Sequence[Axes]) -> None:
    for axes in panels:
        axes.plot([0, 1], [0, 1], label="one")
        twin: Any = axes.twinx()
        twin.plot([0, 1], [0, 99999], label="with a rather long name")
        twin.set_ylabel("On the right")
    legend_above([twin])


def with_rows(panels: Sequence[Axes]) -> None:
    for axes in panels:
        axes.barh(range(2), [1, 2], label="part")
        name_rows(axes, ["off", "a schedule with a name of several lines"])


def with_capitals(panels: Sequence[Axes]) -> None:
    for axes in panels:
        axes.barh(range(2), [1, 2])
        name_rows(axes, ["GPU", "WWMM"])


@pytest.mark.parametrize("draw", [plain, with_a_right_axis, with_rows, with_capitals])
@pytest.mark.parametrize("shape", [(1, 3), (3, 1)])
def test_every_label_is_inside_and_no_panel_covers_another(
    draw: Callable[[Sequence[Axes]], None], shape: tuple[int, int]
) -> None:
    with mpl.rc_context(STYLE):
        canvas = Canvas(figsize=(7.2, 3.0) if shape == (1, 3) else (3.5, 8.0), dpi=POINTS_PER_IN)
        FigureCanvasSVG(canvas)
        panels = list(canvas.subplots(*shape, squeeze=False).flat)
        draw(panels)
        place_panels(canvas)
        canvas.draw_without_rendering()
        boxes = [axes.get_tightbbox().padded(-1.0) for axes in panels]
        legends = [legend.get_window_extent() for legend in canvas.legends]
    width, height = canvas.bbox.size
    for box in boxes + legends:
        assert box.x0 >= 0.0
        assert box.y0 >= 0.0
        assert box.x1 <= width
        assert box.y1 <= height + 1.0
    assert not any(one.overlaps(other) for one, other in itertools.combinations([*boxes, *legends], 2))


def test_a_long_setting_in_a_name_is_cut_behind_its_sign() -> None:
    assert lines_of("off; router=random; engine.max_num_seqs=256") == [
        "off; router=random;",
        "engine.max_num_seqs=",
        "256",
    ]
