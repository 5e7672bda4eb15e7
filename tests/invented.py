"""Made-up results and pictures of figures, for tests of figures."""

import io

import matplotlib.colors
import matplotlib.image
import numpy as np
from matplotlib.collections import PolyCollection

from nrjax.study.case import FIELDS
from nrjax.study.results import Results
from nrjax.study.schema import Coordinate, Pass, StoredCase, Variable
from nrjax.study.store import Store


def invented(folder, cases, reporting=None, **facts):
    """Return the results of a finished run.

    Args:
        folder: folder of the store.
        cases: by name, the labels and the arrays of a pass `outcome`, trials first.
        reporting: builder of the report.
        facts: further facts of the store. `along` has the name and the numbers of a coordinate, by
            the name of the second axis; `seconds` are those of a run and of compilation.
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
        made.append(
            StoredCase(name, labels, {"outcome": Pass(trials, trials, variables, coordinates)})
        )
    store = Store.create(folder, facts, made)
    with store.writer() as writer:
        for name, (_, arrays) in cases.items():
            trials = len(arrays[next(iter(arrays))])
            writer.write(name, "outcome", range(trials), arrays, *seconds)
    return Results(store, reporting)


def picture(figure):
    """Return the pixels of a figure, shape (height, width, 3)."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=60)
    data.seek(0)
    return matplotlib.image.imread(data)[..., :3]


def check_margin(figure):
    """Check that the edge of the picture is blank, so that no text or mark is cut off."""
    assert _blank(picture(figure))


def check_margin_sees(figure):
    """Check that `check_margin` finds a text beyond the edge."""
    figure.text(0.99, 0.5, "cut off")
    assert not _blank(picture(figure))


def _blank(image):
    edges = (image[:2], image[-2:], image[:, :2], image[:, -2:])
    return all(bool((edge == 1).all()) for edge in edges)


def bands(axes, style=None):
    """Return the bands of a panel, all or those of one style."""
    collections = [artist for artist in axes.collections if isinstance(artist, PolyCollection)]
    if style is None:
        return collections
    color = matplotlib.colors.to_rgb(style.line)
    return [band for band in collections if np.allclose(band.get_facecolor()[0, :3], color)]


def ends_of(band):
    """Return lower and upper end of a band, by x."""
    points = np.concatenate([path.vertices for path in band.get_paths()])
    at = {x: points[points[:, 0] == x, 1] for x in np.unique(points[:, 0])}
    return {x: (y.min(), y.max()) for x, y in at.items()}


def legend_of(figure):
    """Return the texts of a figure's legend."""
    return [text.get_text() for text in figure.legends[0].get_texts()]
