"""The picture of the package: its folders in storeys, drawn from their imports.

    python -m docs.figures.storeys

It writes `storeys.svg` next to this file. Run it from the root of a checkout.
"""

from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from tests.imports import FACADE, folder_of, graph, modules, storeys

HERE = Path(__file__).parent
PICTURE = HERE / "storeys.svg"
WORDS = {
    "nrjax": "the public names: __init__, _public, questions",
    "__main__": "python -m nrjax",
    "cli": "the command nrjax",
    "choice": "which mechanism is the cheapest?",
    "papers": "papers as studies, and other ready-made studies",
    "auditing": "do realised losses keep to the epsilon?",
    "study": "named interactions, stored in a folder",
    "simulation": "many trials at a time",
    "counts": "counts under a budget",
    "erm": "private regression",
    "engine": "the steps of one trial",
    "private_selection": "the best of many runs",
    "composition": "filters and odometers",
    "stopping": "rules that stop a trial",
    "guarantees": "time to epsilon",
    "processes": "noise to rewind",
    "schedules": "the times of releases",
    "utilities": "scores of releases",
    "types": "interfaces of the parts",
    "statistics": "intervals and bets",
    "datasets": "rows and counts",
    "_base": "random bits, keys, checks of arguments, rounding, outcomes",
}
"""The content of each folder, in a few words."""
BLUE = "#14476f"
FACES = dict.fromkeys(("engine", "simulation"), "#dfe9f2")
FACES |= dict.fromkeys(("guarantees", "processes", "schedules", "utilities", "stopping"), "#fbeedd")
"""Faces of the folders that run trials, and of those that hold their parts. Others are white."""

WIDTH, HEIGHT, GAP = 100.0, 0.84, 0.7


def lines():
    """Return the number of lines of each folder, and of the public names as `nrjax`."""
    count = {"nrjax": 0}
    for module, path in modules().items():
        folder = "nrjax" if module in FACADE else folder_of(module)
        count[folder] = count.get(folder, 0) + len(path.read_text().splitlines())
    return count


def contents():
    """Return the boxes of each storey from the top down: pairs of a name and its lines."""
    count = lines()
    rows = [["nrjax"], *map(sorted, storeys(graph()))]
    return [[(name, count[name]) for name in row] for row in rows]


def describe(rows):
    """Return the description that the file carries, which also says if it is up to date."""
    return "; ".join(", ".join(f"{name} {size}" for name, size in row) for row in rows)


def read(description):
    """Return the boxes of a description."""
    boxes = (row.split(", ") for row in description.split("; "))
    return [[(box.split()[0], int(box.split()[1])) for box in row] for row in boxes]


def draw(rows):
    """Return the figure."""
    figure = Figure(figsize=(7.2, 5.4))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(len(rows) + 0.08, -0.08))
    axes.axis("off")
    for top, row in enumerate(rows):
        for place, (name, size) in enumerate(row):
            width = WIDTH / len(row)
            draw_box(axes, place * width + GAP, top, width - 2 * GAP, name, size)
    return figure


def draw_box(axes, left, top, width, name, size):
    """Draw a box: the name of a folder, its number of lines and its content."""
    face = FACES.get(name, "white")
    axes.add_patch(Rectangle((left, top + 0.08), width, HEIGHT, fc=face, ec=BLUE, lw=1))
    upper, lower, inside = top + 0.34, top + 0.68, {"va": "center", "size": 9}
    axes.text(left + 1, upper, name, weight="bold", color=BLUE, **inside)
    axes.text(left + width - 1, upper, f"{size:,}", ha="right", color="0.3", **inside)
    axes.text(left + 1, lower, WORDS[name], **inside)


def main():
    """Write the picture."""
    rows = contents()
    options = {"svg.hashsalt": "storeys", "font.family": "DejaVu Sans"}
    with mpl.rc_context(options):
        metadata = {"Date": None, "Description": describe(rows)}
        draw(rows).savefig(PICTURE, metadata=metadata, facecolor="white")


if __name__ == "__main__":
    main()
