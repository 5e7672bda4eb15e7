"""Vectorised simulation of noise-reduction mechanisms with ex-post differential privacy."""

import importlib
from typing import TYPE_CHECKING

from nrjax import _interrupt  # noqa: F401
from nrjax.batching import Batching
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
from nrjax.montecarlo import simulate
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
from nrjax.stopping import (
    AboveThreshold,
    InteractiveAboveThreshold,
    LaplaceTests,
    PublicThreshold,
    ReducedAboveThreshold,
)
from nrjax.sweeps import sweep
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
    from nrjax import plots as plots
    from nrjax import sketches as sketches
    from nrjax import sketching as sketching
    from nrjax import studies as studies
else:

    def __getattr__(name):
        """Packages that `import nrjax` leaves out, for its quickness, come when they are named."""
        if name in ("counts", "datasets", "erm", "plots", "sketches", "sketching", "studies"):
            return importlib.import_module(f"nrjax.{name}")
        raise AttributeError(f"module 'nrjax' has no attribute {name!r}")


__version__ = "0.1.0"

__all__ = [
    "AboveThreshold",
    "AdaptiveTimes",
    "Batching",
    "Brownian",
    "BrownianOdometer",
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
    "MixtureBoundary",
    "NoiseProcess",
    "OneSidedBrownianOdometer",
    "OneSidedMixtureBoundary",
    "Outcome",
    "Path",
    "PublicThreshold",
    "PureGuarantee",
    "Pytree",
    "ReducedAboveThreshold",
    "RenyiFilter",
    "RenyiOdometer",
    "Schedule",
    "Sensitivity",
    "SideBySideFilter",
    "Skellam",
    "Status",
    "StoppingRule",
    "UnifiedFilter",
    "Utility",
    "UtilitySequence",
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
