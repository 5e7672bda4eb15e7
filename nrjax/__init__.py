"""Vectorised simulation of noise-reduction mechanisms with ex-post differential privacy."""

import importlib
from typing import TYPE_CHECKING

from nrjax import _interrupt  # noqa: F401
from nrjax.composition import (
    BrownianOdometer,
    ExPostFilter,
    ExPostOdometer,
    GaussianFilter,
    OneSidedBrownianOdometer,
    RenyiFilter,
    RenyiOdometer,
    SideBySideFilter,
    UnifiedFilter,
    ZCDPFilter,
)
from nrjax.engine import Path, run_until, scan_path
from nrjax.guarantees import (
    LinearBoundary,
    MixtureBoundary,
    OneSidedMixtureBoundary,
    PureGuarantee,
)
from nrjax.interaction import Interaction
from nrjax.keys import trial_key
from nrjax.processes import (
    Brownian,
    IndependentLaplace,
    Laplace,
    LaplaceJumps,
    Skellam,
    noise_path,
)
from nrjax.pytrees import Pytree, static
from nrjax.schedules import AdaptiveTimes, Grid
from nrjax.sensitivities import Sensitivity
from nrjax.simulation.batching import Batching
from nrjax.simulation.bins import LogBins, WholeBins
from nrjax.simulation.montecarlo import simulate
from nrjax.simulation.sweeps import sweep
from nrjax.stopping import (
    AboveThreshold,
    InteractiveAboveThreshold,
    LaplaceTests,
    PublicThreshold,
    ReducedAboveThreshold,
)
from nrjax.types import (
    Guarantee,
    NoiseProcess,
    Outcome,
    Schedule,
    Status,
    StoppingRule,
    Utility,
)
from nrjax.utilities import UtilitySequence

if TYPE_CHECKING:
    from nrjax import counts as counts
    from nrjax import datasets as datasets
    from nrjax import erm as erm
    from nrjax import papers as papers
    from nrjax import study as study
    from nrjax.study.case import Case as Case
    from nrjax.study.case import Curve as Curve
    from nrjax.study.case import Quantity as Quantity
    from nrjax.study.distribution import Distribution as Distribution
    from nrjax.study.distribution import Sample as Sample
    from nrjax.study.outcomes import Outcomes as Outcomes
    from nrjax.study.results import Reporting as Reporting
    from nrjax.study.results import Results as Results
    from nrjax.study.study import Study as Study
else:
    _ROOMS = ("counts", "datasets", "erm", "papers", "study")
    _STUDIES = {
        "Case": "case",
        "Curve": "case",
        "Distribution": "distribution",
        "Outcomes": "outcomes",
        "Quantity": "case",
        "Reporting": "results",
        "Results": "results",
        "Sample": "distribution",
        "Study": "study",
    }

    def __getattr__(name):
        """What `import nrjax` leaves out, for its quickness, comes when it is named."""
        if name in _ROOMS:
            return importlib.import_module(f"nrjax.{name}")
        if name in _STUDIES:
            return getattr(importlib.import_module(f"nrjax.study.{_STUDIES[name]}"), name)
        raise AttributeError(f"module 'nrjax' has no attribute {name!r}")


__version__ = "0.1.0"

__all__ = [
    "AboveThreshold",
    "AdaptiveTimes",
    "Batching",
    "Brownian",
    "BrownianOdometer",
    "Case",
    "Curve",
    "Distribution",
    "ExPostFilter",
    "ExPostOdometer",
    "GaussianFilter",
    "Grid",
    "Guarantee",
    "IndependentLaplace",
    "Interaction",
    "InteractiveAboveThreshold",
    "Laplace",
    "LaplaceJumps",
    "LaplaceTests",
    "LinearBoundary",
    "LogBins",
    "MixtureBoundary",
    "NoiseProcess",
    "OneSidedBrownianOdometer",
    "OneSidedMixtureBoundary",
    "Outcome",
    "Outcomes",
    "Path",
    "PublicThreshold",
    "PureGuarantee",
    "Pytree",
    "Quantity",
    "ReducedAboveThreshold",
    "RenyiFilter",
    "RenyiOdometer",
    "Reporting",
    "Results",
    "Sample",
    "Schedule",
    "Sensitivity",
    "SideBySideFilter",
    "Skellam",
    "Status",
    "StoppingRule",
    "Study",
    "UnifiedFilter",
    "Utility",
    "UtilitySequence",
    "WholeBins",
    "ZCDPFilter",
    "__version__",
    "noise_path",
    "run_until",
    "scan_path",
    "simulate",
    "static",
    "sweep",
    "trial_key",
]
