"""The compiled programs of the papers' studies."""

import fnmatch
import sys
from collections.abc import Sequence

from nrjax.simulation.program import Program
from nrjax.study import local, provenance
from nrjax.study.options import RunOptions
from nrjax.study.study import Study


def chosen(study: Study, patterns: Sequence[str]) -> Study:
    """Return the study of the cases whose names match a pattern, or exit if there are none."""
    cases = {
        name: case
        for name, case in study.cases.items()
        if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    }
    if not cases:
        sys.exit(f"--cases {patterns}: no case has such a name")
    return Study(study.name, cases)


def programs(study: Study, trials: int) -> dict[str, dict[str, Program]]:
    """Return the programs by case and pass. Equal programs share a compilation."""
    passes = study._passes(RunOptions(trials=trials))
    found: dict[str, dict[str, Program]] = {name: {} for name in passes}
    for (case, name), program in local.programs(passes, provenance.fingerprints(passes)).items():
        found[case][name] = program
    return found
