"""Results that were made up, and pictures of figures: what tests of figures share."""

import io

import matplotlib.colors
import matplotlib.image
import numpy as np
from matplotlib.collections import PolyCollection

from nrjax.study.case import FIELDS
from nrjax.study.layout import Case, Coordinate, Pass, Variable
from nrjax.study.results import Results
from nrjax.study.store import Store


def invented(folder, cases, reporting=None, **facts):
    """Results of a finished run.

    Args:
        folder: for them.
        cases: by name, the labels and the arrays of a pass `outcome`, trials first.
        reporting: what tells of them.
        facts: what else the store holds; `along`, by the name of the second axis, are what is told
            along it: a name, and the numbers; `seconds` are those of a run and of compilation.
    """
    along, seconds = facts.pop("along", {}), facts.pop("seconds", ())
    made = []
    for name, (labels, arrays) in cases.items():
        variables = {
            key: Variable(
                array.dtype.name,
                tuple(zip(along, array.shape[1:], strict=False)),
                FIELDS.get(key, {}),
            )
            for key, array in arrays.items()
        }
        trials = len(arrays[next(iter(arrays))])
        coordinates = {key: Coordinate(dim, values) for dim, (key, values) in along.items()}
        made.append(Case(name, labels, {"outcome": Pass(trials, trials, variables, coordinates)}))
    store = Store.create(folder, facts, made)
    with store.writer() as writer:
        for name, (_, arrays) in cases.items():
            trials = len(arrays[next(iter(arrays))])
            writer.write(name, "outcome", range(trials), arrays, *seconds)
    return Results(store, reporting)


def picture(figure):
    """Shape (height, width, 3)."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=60)
    data.seek(0)
    return matplotlib.image.imread(data)[..., :3]


def check_margin(figure):
    """A margin of the picture's edge is blank: no text or mark runs into it."""
    assert _blank(picture(figure))


def check_margin_sees(figure):
    """The negative control: a text beyond the edge is seen."""
    figure.text(0.99, 0.5, "cut off")
    assert not _blank(picture(figure))


def _blank(image):
    edges = (image[:2], image[-2:], image[:, :2], image[:, -2:])
    return all(bool((edge == 1).all()) for edge in edges)


def bands(axes, style=None):
    """Bands of a panel, or those of a style alone."""
    found = [one for one in axes.collections if isinstance(one, PolyCollection)]
    if style is None:
        return found
    color = matplotlib.colors.to_rgb(style.line)
    return [one for one in found if np.allclose(one.get_facecolor()[0, :3], color)]


def ends_of(band):
    """Lower and upper end of a band, by x."""
    points = np.concatenate([path.vertices for path in band.get_paths()])
    at = {x: points[points[:, 0] == x, 1] for x in np.unique(points[:, 0])}
    return {x: (y.min(), y.max()) for x, y in at.items()}


def legend_of(figure):
    """What stands in a figure's legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()]
