"""The page howto/opendp.md: OpenDP adds the noise that nrjax simulates, question by question."""

import re
from pathlib import Path

import numpy as np
import pytest

import nrjax

opendp = pytest.importorskip("opendp.prelude", reason="docs/howto/opendp.md needs opendp")

ROWS, EPSILON = 1000, 0.1151
PAGE = (Path(__file__).parents[1] / "docs" / "howto" / "opendp.md").read_text()
NUMBERS = np.linspace(0.0, 99.9, ROWS)
ANSWERS = np.arange(ROWS) % 3 == 0
GROUPS = [str(row % 4) for row in range(ROWS)]
BOUNDS = (0.0, 100.0)


def mean(query):
    return query.clamp(BOUNDS).mean()


def total(query):
    return query.clamp(BOUNDS).sum()


def answers(query):
    return query.clamp((0, 1)).sum()


def count(query):
    return query.count()


def categories(query):
    return query.count_by_categories(["0", "1", "2", "3"])


QUERIES = (  # kind of question, relation, data for OpenDP, query
    ("mean", "replace", NUMBERS.tolist(), mean),
    ("sum", "replace", NUMBERS.tolist(), total),
    ("sum", "add-remove", NUMBERS.tolist(), total),
    ("count", "replace", ANSWERS.astype(int).tolist(), answers),
    ("count", "add-remove", [1] * int(ANSWERS.sum()), count),
    ("counts", "replace", GROUPS, categories),
    ("counts", "add-remove", GROUPS, categories),
)


def noise_scale(relation, data, query):
    """Return the scale of OpenDP's noise with the unit and the size that the page states."""
    opendp.enable_features("contrib")
    kind = type(data[0])
    atom = opendp.atom_domain(T=kind, **({"nan": False} if kind is float else {}))
    size = {"size": len(data)} if relation == "replace" else {}
    context = opendp.Context.compositor(
        data=data,
        privacy_unit=opendp.unit_of(contributions=2 if relation == "replace" else 1),
        privacy_loss=opendp.loss_of(epsilon=EPSILON),
        split_evenly_over=1,
        domain=opendp.vector_domain(atom, **size),
    )
    return query(context.query()).laplace().param()


def sensitivity(kind, relation):
    """Return the l1-sensitivity that nrjax states for a question."""
    if kind in ("mean", "sum"):
        question = getattr(nrjax.questions, kind)(NUMBERS, BOUNDS, relation=relation)
    elif kind == "count":
        question = nrjax.questions.count(ANSWERS, relation=relation)
    else:
        question = nrjax.questions.counts(GROUPS, within=50, relation=relation)
    return float(question.mechanisms["laplace"].guarantee.sensitivity)


@pytest.mark.parametrize(("kind", "relation", "data", "query"), QUERIES)
def test_the_query_of_each_question_has_its_noise(kind, relation, data, query):
    assert noise_scale(relation, data, query) * EPSILON == pytest.approx(
        sensitivity(kind, relation), rel=1e-6
    )


def test_a_count_of_replaced_rows_would_get_twice_the_noise():
    scale = noise_scale("replace", ANSWERS.astype(int).tolist(), count)
    assert scale * EPSILON == pytest.approx(2 * sensitivity("count", "replace"), rel=1e-9)


def test_the_release_of_the_page_has_the_stated_noise():
    (code,) = re.findall(r"^```py\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    names = {"private": NUMBERS.tolist(), "epsilon": EPSILON}
    exec(code, names)
    assert names["scale"] * names["epsilon"] == pytest.approx(100 / ROWS, rel=1e-9)
    assert abs(names["release"] - NUMBERS.mean()) < 40 * names["scale"]
