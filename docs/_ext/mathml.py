"""Mathematics as MathML, which browsers draw without a script and without a network.

`conf.py` adds the font STIX Two Math, which `nrjax.css` names.
"""

from docutils import nodes
from latex2mathml.converter import convert

# As in TeX, no space around bars and slashes, which browsers set as operators.
_TIGHT = {
    '<mo stretchy="false">&#x0007C;</mo>': "<mi>|</mi>",
    "<mo>&#x0002F;</mo>": "<mi>/</mi>",
}


def _mathml(node, display):
    """Return the MathML of a node with LaTeX."""
    text = convert(node.astext().replace("{aligned}", "{align*}"), display=display)
    for wide, tight in _TIGHT.items():
        text = text.replace(wide, tight)
    return text


def _inline(self, node):
    self.body.append(_mathml(node, "inline"))
    raise nodes.SkipNode


def _block(self, node):
    self.body.append(f'<div class="formula">{_mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def setup(app):
    """Register the renderer `mathml` of `html_math_renderer`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
