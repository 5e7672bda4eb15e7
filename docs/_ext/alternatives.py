"""Alternative texts for the figures of executed pages that state none: page and section."""

from docutils import nodes


def _name(app, doctree):
    """Name each figure without an alternative text by the titles of its page and its section."""
    page = next((title.astext() for title in doctree.findall(nodes.title)), "")
    for image in doctree.findall(nodes.image):
        stated = image.get("alt", "")
        if stated and not stated.endswith((".png", ".svg")):
            continue
        section = image.parent
        while section is not None and not isinstance(section, nodes.section):
            section = section.parent
        heading = section.next_node(nodes.title).astext() if section is not None else page
        image["alt"] = f"Figure: {page}" + (f", {heading}" if heading != page else "")


def setup(app):
    """Name the figures when a page has been read."""
    app.connect("doctree-read", _name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
