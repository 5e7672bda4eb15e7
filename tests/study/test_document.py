"""The forms of a report: Markdown, one HTML file and a notebook's HTML; its first sentence."""

import html.parser
import re

from nrjax.study.answers import answer
from nrjax.study.document import Report

REPORT = Report(
    "a <study>",
    ("case", "half pay at most"),
    (("x|y", "0.2"), ("z", "<inf>")),
    ("Uses `--test`.",),
    "Half of the runs pay 0.2 & more.",
    ("Not the stop.",),
    ("nrjax 1.",),
    "epsilon_cdf",
)
PICTURE = b"\x89PNG\r\n\x1a\n"


class Reader(html.parser.HTMLParser):
    """Collects the open tags, the addresses and the words of a page, and checks the nesting."""

    def __init__(self, text):
        super().__init__()
        self.open, self.addresses, self.words = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.addresses += [value for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data.strip())


def places(text, *parts):
    """Return the positions of the parts in a text, each of which must be there."""
    found = [text.find(part) for part in parts]
    assert -1 not in found, (found, text)
    return found


def test_all_forms_have_the_same_parts_in_one_order():
    page, notebook = Reader(REPORT.to_html(PICTURE)), Reader(REPORT._repr_html_())
    parts = ("a <study>", "Half of the runs", "0.2", "What this number does not cover")
    parts += ("Not the stop.", "Notes", "Uses", "Provenance", "nrjax 1.")
    for text in (str(REPORT), "\n".join(page.words), "\n".join(notebook.words)):
        found = places(text, *parts)
        assert found == sorted(found)
        assert "<inf>" in text
    assert r"| x\|y | 0.2 |" in str(REPORT)
    (line,) = re.findall(r"!\[(.*)\]\(figures/epsilon_cdf.png\)", str(REPORT))
    assert line == REPORT.alternative == "Figure: epsilon cdf of x|y, z"


def test_a_page_needs_no_other_file():
    (address,) = Reader(REPORT.to_html(PICTURE)).addresses
    assert address == "data:image/png;base64,iVBORw0KGgo="
    assert Reader(REPORT.to_html()).addresses == []
    assert not re.search(r"https?:|@import|url\(|<script", REPORT.to_html(PICTURE))


def case(name, median, public):
    facts = {"stopped": 1.0, "public_test": public}
    return {"case": name, "stopping_epsilon": {"q50": median}, **facts}


def test_the_number_that_covers_the_stop_comes_first():
    cases = [case("free", 1.25, True), case("paid", 34.5, False)]
    text = answer({"cases": cases})
    found = places(text, "34.5 (paid)", "covers the decision to stop", "1.25 (free)")
    assert found == sorted(found)
    assert "reads no private data" in text
    assert answer({"cases": cases[:1]}) == (
        "Half of the runs pay an epsilon of at most 1.25 (free). This does not cover the decision "
        "to stop."
    )
    many = [case(str(place), float(place), None) for place in (3, 1, 4, 2)]
    assert "at most 1 (1) to 4 (4), by case." in answer({"cases": many})
    two = [many[3], many[0], case("never", None, None)]
    assert "at most 2 (2) or 3 (3); in 1 more cases most" in answer({"cases": two})
    poor = case("free", 0.5, True) | {"met": 0.12}
    assert answer({"cases": [poor, case("paid", 34.5, False) | {"met": 0.95}]}).endswith(
        "Not all runs are good enough: only 12 % of those of free."
    )
    assert "good enough" not in answer({"cases": [poor | {"met": 0.9}]})
    low = case("paid", 34.5, False) | {"stopped_at_first_step": 0.6}
    single = low | {"stopping_epsilon": {"q50": 34.5, "q95": 34.5}}
    said = "More than half of the runs of paid stopped at their first level"
    assert said in answer({"cases": [low]})
    for other in (single, low | {"stopped_at_first_step": 0.5}):
        assert "first level" not in answer({"cases": [other]})
    once = "One release costs 20."
    found = places(answer({"cases": cases}, (20.0, once)), once, "34.5 (paid)", "1.25 (free)")
    assert found == sorted(found)
    assert "To publish one model, take it" in answer({"cases": cases}, (20.0, once))
    assert "take it" not in answer({"cases": cases}, (40.0, once))
    found = places(answer({"cases": cases}, (40.0, once)), "34.5 (paid)", once, "1.25 (free)")
    assert found == sorted(found)
    text = answer({"cases": cases[:1]}, (20.0, once))
    assert text.startswith(once)
    assert "reads no private data" in text
    assert "infinity, since" in answer({"cases": [case("never", None, None)]})
    assert answer({"cases": [{"case": "custom"}]}) == ""
