"""The candidates of `nrjax.choose`: their levels, and which are left out."""

import numpy as np

from nrjax import questions
from nrjax.choice.candidates import Plan, candidates
from nrjax.choice.closed_forms import gaussian_time_at_distance
from nrjax.stopping import accuracy


def test_levels_of_private_tests_go_where_releases_surely_pass_them():
    """Such a release is nearer than the target by the margin, also if all errors are alike."""
    question = questions.vector_mean(np.zeros((2, 100)), row_norm=1.0)
    listed = candidates(question, Plan(100.0, 0.9, None))
    last = np.asarray(listed["brownian-private"].interaction.schedule.times)[-1]
    nearer = (1 - accuracy.MARGIN) * 100.0
    assert last < 0.5 * gaussian_time_at_distance(nearer, 100, 0.9)


def test_small_errors_have_no_epsilons_that_state_no_privacy():
    question = questions.mean(np.linspace(0, 100, 200), (0, 100))
    for error, hockey_stick in ((0.5, True), (0.03, False)):
        listed = candidates(question, Plan(error, 0.9, None))
        assert "brownian-once" in listed
        assert ("brownian-once-hockey-stick" in listed) == hockey_stick
        assert any(name.startswith("laplace-private") for name in listed) == hockey_stick
