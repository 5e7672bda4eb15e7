"""Functions that draw figures, save them as files and show them in notebooks.

They use matplotlib's objects and its Agg canvas without pyplot, and one fixed style in place of the
user's, so that equal results give equal bytes.
"""

import base64
import html
import io
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from nrjax.study.files import FIGURES
from nrjax.study.store import Writer

_STYLE: Any = ["default", {"svg.hashsalt": "nrjax", "hatch.linewidth": 0.6}]


class ShownFigure(Figure):
    """A figure that a notebook shows without importing pyplot."""

    def _repr_png_(self) -> bytes:
        return _png(self)


class Figures(dict[str, Figure]):
    """A dictionary of figures by name, which a notebook shows one below the other."""

    def _repr_html_(self) -> str:
        shown = []
        for name, figure in self.items():
            data = base64.b64encode(_png(figure)).decode()
            picture = f'<img alt="{html.escape(name)}" src="data:image/png;base64,{data}">'
            shown.append(f"<p><b>{html.escape(name)}</b><br>{picture}</p>")
        return "".join(shown)


def _png(figure: Figure) -> bytes:
    """Return a figure as a PNG file, without changing the figure."""
    data = io.BytesIO()
    with matplotlib.style.context(_STYLE):
        figure.savefig(data, format="png")
    return data.getvalue()


def draw_figures(frame: Any, makers: Mapping[str, Callable[[Any], Figure]]) -> Figures:
    """Return each figure of a frame by name, drawn in the fixed style."""
    with matplotlib.style.context(_STYLE):
        return Figures({name: make(frame) for name, make in makers.items()})


def save_figure(writer: Writer, name: str, figure: Figure) -> bytes:
    """Write a figure as PNG and SVG into `figures/` of the writer's folder. Return the PNG."""
    with matplotlib.style.context(_STYLE):  # the style applies to ticks, which are made here
        figure.set_dpi(150)
        canvas = FigureCanvasAgg(figure)
        engine = figure.get_layout_engine()
        if engine is not None:  # lay out once, for both formats
            engine.execute(figure)
            figure.set_layout_engine(None)
        canvas.draw()  # fast, since this canvas has cached the sizes of texts
        png, svg = io.BytesIO(), io.BytesIO()
        image = Image.fromarray(np.asarray(canvas.buffer_rgba()))
        image.convert("RGB").save(png, format="png", dpi=(150, 150), compress_level=3)
        # No date and no version, so that equal figures have equal bytes.
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
        for suffix, data in (("png", png), ("svg", svg)):
            writer.write_document(f"{FIGURES}/{name}.{suffix}", data.getvalue())
    return png.getvalue()
