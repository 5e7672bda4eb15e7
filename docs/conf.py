"""Configuration of the site, which `docs/build.sh` builds."""

import os
import sys
from pathlib import Path

import ziamath

import nrjax

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_ext"))

MATHEMATICAL_FONT = Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf"

project, author, copyright = "nrjax", "The nrjax developers", "The nrjax developers"
version = release = nrjax.__version__

extensions = [
    *("myst_nb", "sphinx_design", "sphinx_copybutton", "sphinxcontrib.bibtex"),
    *("sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"),
    *("mathml", "docstrings", "sources", "alternatives"),
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_ext", "_templates", "jupyter_execute"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "_build" / "notebooks")
nb_execution_timeout = 1800  # seconds of a cell, on a busy machine too
nb_execution_raise_on_error = True
nb_merge_streams = True

bibtex_bibfiles = ["references.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
napoleon_attr_annotations = False
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_use_rtype = False

nitpick_ignore = [("py:obj", "nrjax.erm.statistics.sensitivity")]
nitpick_ignore += [("py:exc", f"{name}Error") for name in ("Unfinished", "StoreBusy", "Damaged")]

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Names of other projects are links only if you ask for them: their lists need a network.
if os.environ.get("NRJAX_DOCS_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "jax": ("https://docs.jax.dev/en/latest", None),
        "xarray": ("https://docs.xarray.dev/en/stable", None),
    }

html_theme = "pydata_sphinx_theme"
html_title = f"nrjax {release}"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static", str(MATHEMATICAL_FONT)]
html_css_files = ["nrjax.css"]
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_prev_next": True,
    "show_nav_level": 1,
    "navigation_with_keys": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
