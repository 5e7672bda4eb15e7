"""The printed table of a choice."""

import math

from nrjax.choice.racing import Verdict
from nrjax.choice.report import Choice, Row


def row(name, verdict, scale, cheaper):
    interval = (0.00698 * scale, 0.0107 * scale)
    estimates = 1.0, (1.0, 1.0), 0.00838 * scale, interval, 0.0299 * scale, interval
    return Row(name, "Public test", verdict, *estimates, cheaper, None, "pure", 256)


def test_columns_have_headings_and_line_up_for_small_epsilons():
    rows = row("laplace", Verdict.BEST, 1.0, math.nan), row("brownian", Verdict.DEARER, 100.0, 0.3)
    choice = Choice("mean", 1.0, 0.9, "laplace", (), (), rows, "Take laplace.", None)
    head, best, other = str(choice).splitlines()[3:6]
    assert "0.00838 (0.00698 to 0.0107)" in best
    for heading, first, second in (
        ("verdict", "best", "more expensive"),
        ("notion", "pure", "pure"),
        ("90 % epsilon", "0.0299 (", "2.99 ("),
        ("median epsilon", "0.00838 (", "0.838 ("),
    ):
        assert head.index(heading) == best.index(first) == other.index(second)
    assert "cheaper: fraction of runs" in str(choice)
