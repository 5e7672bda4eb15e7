"""The thumbnails of the gallery, from the figures of its pages.

    python docs/figures/thumbnails.py

It reads the outputs that the last build of the site stored, and writes the first figure of each
page of the gallery, 360 pixels wide, into `thumbnails/`. For the map it takes `phase.png`.
"""

import base64
import io
from pathlib import Path

import jupyter_cache
from PIL import Image

HERE = Path(__file__).parent
STORED = HERE.parent / "_build" / "notebooks"
WIDTH = 360


def first_figures():
    """Generate the name of each executed page of the gallery, and its first figure."""
    cache = jupyter_cache.get_cache(STORED)
    for record in cache.list_cache_records():
        page = Path(record.uri)
        if page.parent.name not in ("gallery", "tutorials"):
            continue
        notebook = cache.get_cache_bundle(record.pk).nb
        for cell in notebook.cells:
            for output in cell.get("outputs", ()):
                data = output.get("data", {}).get("image/png")
                if data:
                    yield page.stem, Image.open(io.BytesIO(base64.b64decode(data)))
                    break
            else:
                continue
            break


def main():
    """Write the thumbnails."""
    folder = HERE / "thumbnails"
    folder.mkdir(exist_ok=True)
    wanted = {path.stem for path in (HERE.parent / "gallery").glob("*.md")} | {"tiers_of_trust"}
    figures = {name: figure for name, figure in first_figures() if name in wanted}
    figures["map"] = Image.open(HERE / "phase.png")
    for name, figure in figures.items():
        small = figure.convert("RGB")
        small.thumbnail((WIDTH, WIDTH))
        small.quantize(64).save(folder / f"{name}.png", optimize=True)
    print(*sorted(figures))


if __name__ == "__main__":
    main()
