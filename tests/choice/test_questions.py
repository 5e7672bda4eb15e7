"""Questions about data with missing values or text."""

import numpy as np
import pytest

import nrjax
from nrjax import questions


class Missing:
    """A value as pandas' NA: neither equal to itself nor different."""

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError

    __eq__, __hash__ = __ne__, object.__hash__


@pytest.mark.parametrize("missing", [float("nan"), None, Missing()])
@pytest.mark.parametrize(
    ("ask", "first", "name"),
    [
        (lambda x: questions.mean(x, (0, 1)), 0.5, "x"),
        (lambda x: questions.sum(x, (0, 1)), 0.5, "x"),
        (questions.count, True, "x"),
        (lambda x: questions.histogram(x, [0, 1, 2]), 0.5, "values"),
        (lambda x: questions.counts(x, 100), "a", "groups"),
        (lambda x: questions.counts(x, 100), 4, "groups"),
        (lambda x: questions.vector_mean([x], 1.0), 0.5, "rows"),
    ],
)
def test_missing_values_are_counted_and_refused(ask, first, name, missing):
    message = rf"^{name} must be without missing values \(got '2 missing of 3'\)\. Drop"
    for data in ([first, missing, missing], np.array([first, missing, missing], object)):
        with pytest.raises(ValueError, match=message):
            ask(data)


def test_text_is_no_number():
    for data in (["1", "2"], [1.0, "2"], np.array([1.0, "2"], object)):
        with pytest.raises(ValueError, match=r"^values must be numbers, not text \(got 'text in"):
            questions.histogram(data, [0, 1])
    nested = np.empty(2, object)
    nested[:] = [np.zeros(2), np.zeros(3)]
    with pytest.raises(ValueError, match=r"^values must be a vector of numbers"):
        questions.histogram(nested, [0, 1])


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_an_error_that_needs_no_release_is_named(kind):
    """The planted fault is no doubt at all, as if every error were worth a release."""
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(-0.5, 0.5, 300), np.full(300, 0.5)])
    y = np.where(x[:, 0] + 0.3 + 0.1 * rng.normal(size=300) > 0, 1.0, -1.0)
    question = getattr(questions, f"{kind}_regression")(x, y, regularisation=0.01)
    zero, constant = question.trivial.values()
    assert 0 < constant < zero
    for error, named in ((zero, "zero model"), (constant, "constant model"), (constant / 2, "")):
        doubts = question.doubts(error)
        assert len(doubts) == bool(named)
        assert all(named in text for text in doubts)


@pytest.mark.long
def test_a_choice_that_needs_no_release_warns():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.uniform(-0.5, 0.5, 300), np.full(300, 0.5)])
    question = questions.logistic_regression(x, np.where(x[:, 0] > 0, 1.0, -1.0))
    with pytest.warns(UserWarning, match="is met by the zero model, whose error is"):
        choice = nrjax.choose(question, 1.0, trials=256, progress=False)
    assert "Warning: An error of" in str(choice)


def test_large_counts_have_no_private_tests():
    groups = np.zeros(17_000_000, np.int8)  # more than float32 counts exactly
    large = nrjax.questions.counts(groups, within=100)
    small = nrjax.questions.counts(groups[:1000], within=100)
    assert large.sensitivity is None
    assert "private tests are left out" in large.remarks[0]
    assert small.sensitivity > 0.02
    assert not small.remarks
