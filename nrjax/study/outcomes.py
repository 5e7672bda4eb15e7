"""Outcomes in memory, with the distributions, tables and figures of a study's results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from nrjax._validation import check
from nrjax.study.case import FIELDS
from nrjax.study.checks import check_goal, check_known, check_mapping
from nrjax.study.frame import Frame
from nrjax.study.layout import Case, Pass, Variable
from nrjax.study.results import Reporting
from nrjax.types import Outcome


class Outcomes(Frame):
    """What `nrjax.simulate` gave, by name, with the tables and figures of a study.

    Outcomes of one key share their random numbers, so that their differences are paired.

    Args:
        outcomes: by name, each with a leading axis of as many trials.
        goals: utility that each should reach, by name; those without one may be left out.
        notions: what epsilon says of each (`Guarantee.notion`), by name; so, too.

    Raises:
        ValueError: there is none, or they differ in their number of trials.
    """

    def __init__(
        self,
        outcomes: Mapping[str, Outcome],
        goals: Mapping[str, float] | None = None,
        notions: Mapping[str, str] | None = None,
    ):
        check_mapping("outcomes", outcomes, "nrjax.Outcome, such as {'brownian': outcome}")
        check(len(outcomes) > 0, "outcomes", dict(outcomes), "at least one, by name")
        for what, given in (("goals", goals or {}), ("notions", notions or {})):
            check_mapping(what, given, "what is known of each of the outcomes")
            for name in given:
                check_known(f"name in {what}", name, outcomes)
        for name, goal in (goals or {}).items():
            check_goal(f"goals[{name!r}]", goal)
        self._outcomes, cases = {}, {}
        for name, outcome in outcomes.items():
            right = "a name without a slash, which comes before a pass"
            check("/" not in name, "name", name, right)
            check(isinstance(outcome, Outcome), f"outcomes[{name!r}]", outcome, "a nrjax.Outcome")
            arrays = {field: np.asarray(getattr(outcome, field)) for field in FIELDS}
            shape = arrays["status"].shape
            right = "of one axis, that of trials (of a sweep take one point)"
            check(len(shape) == 1, f"outcomes[{name!r}]", shape, right)
            said = {"goal": goals, "notion": notions}
            labels = {one: of[name] for one, of in said.items() if of and name in of}
            kept = {one: Variable(arrays[one].dtype.name, (), FIELDS[one]) for one in FIELDS}
            layout = Pass(trials=shape[0], chunk=shape[0], variables=kept)
            cases[name] = Case(name, labels, {"outcome": layout})
            self._outcomes[name] = arrays
        sizes = {name: arrays["status"].size for name, arrays in self._outcomes.items()}
        ok = len(set(sizes.values())) == 1 and min(sizes.values()) > 0
        check(ok, "trials", sizes, "the same number in all outcomes, at least 1")
        super().__init__(cases, {"study": "outcomes"}, Reporting())

    def __repr__(self) -> str:
        return f"Outcomes of {self.trials:,} trials of {', '.join(self.cases)}"

    def _kept(self, case: str, name: str) -> dict[str, np.ndarray]:
        return {**self._outcomes[case], "trial": np.arange(self.trials)}
