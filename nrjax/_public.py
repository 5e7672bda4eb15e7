"""The public names of nrjax. `nrjax` imports this module when one of them is first used."""

import importlib
from typing import TYPE_CHECKING

from nrjax._base.keys import trial_key as trial_key
from nrjax._base.outcome import Outcome as Outcome
from nrjax._base.outcome import Status as Status
from nrjax._base.pytrees import Pytree as Pytree
from nrjax._base.pytrees import static as static
from nrjax._base.sensitivities import Sensitivity as Sensitivity
from nrjax.auditing.audit import audit as audit
from nrjax.auditing.report import Audit as Audit
from nrjax.composition import BrownianOdometer as BrownianOdometer
from nrjax.composition import ExPostFilter as ExPostFilter
from nrjax.composition import ExPostOdometer as ExPostOdometer
from nrjax.composition import GaussianFilter as GaussianFilter
from nrjax.composition import OneSidedBrownianOdometer as OneSidedBrownianOdometer
from nrjax.composition import RenyiFilter as RenyiFilter
from nrjax.composition import RenyiOdometer as RenyiOdometer
from nrjax.composition import SideBySideFilter as SideBySideFilter
from nrjax.composition import UnifiedFilter as UnifiedFilter
from nrjax.composition import ZCDPFilter as ZCDPFilter
from nrjax.engine.fixed import FixedRelease as FixedRelease
from nrjax.engine.interaction import Interaction as Interaction
from nrjax.engine.mechanism import Mechanism as Mechanism
from nrjax.engine.mechanism import brownian as brownian
from nrjax.engine.mechanism import discrete_laplace as discrete_laplace
from nrjax.engine.mechanism import laplace as laplace
from nrjax.engine.path import Path as Path
from nrjax.engine.path import scan_path as scan_path
from nrjax.engine.releases import Releases as Releases
from nrjax.engine.steps import run_until as run_until
from nrjax.guarantees import DiscretePureGuarantee as DiscretePureGuarantee
from nrjax.guarantees import GridBoundary as GridBoundary
from nrjax.guarantees import HockeyStickBoundary as HockeyStickBoundary
from nrjax.guarantees import LinearBoundary as LinearBoundary
from nrjax.guarantees import MixtureBoundary as MixtureBoundary
from nrjax.guarantees import OneSidedMixtureBoundary as OneSidedMixtureBoundary
from nrjax.guarantees import PureGuarantee as PureGuarantee
from nrjax.guarantees import RenyiBoundary as RenyiBoundary
from nrjax.guarantees import RenyiMixture as RenyiMixture
from nrjax.guarantees import SphericalPureGuarantee as SphericalPureGuarantee
from nrjax.private_selection import PoissonSelection as PoissonSelection
from nrjax.processes import Brownian as Brownian
from nrjax.processes import DiscreteLaplace as DiscreteLaplace
from nrjax.processes import IndependentLaplace as IndependentLaplace
from nrjax.processes import Laplace as Laplace
from nrjax.processes import LaplaceJumps as LaplaceJumps
from nrjax.processes import Skellam as Skellam
from nrjax.processes import SphericalLaplace as SphericalLaplace
from nrjax.processes import noise_path as noise_path
from nrjax.schedules import AdaptiveTimes as AdaptiveTimes
from nrjax.schedules import Grid as Grid
from nrjax.simulation.batching import Batching as Batching
from nrjax.simulation.bins import LogBins as LogBins
from nrjax.simulation.bins import WholeBins as WholeBins
from nrjax.simulation.failures import FailedTrialsWarning as FailedTrialsWarning
from nrjax.simulation.failures import FirstLevelWarning as FirstLevelWarning
from nrjax.simulation.failures import NoStopWarning as NoStopWarning
from nrjax.simulation.montecarlo import simulate as simulate
from nrjax.simulation.montecarlo import sweep as sweep
from nrjax.stopping import AboveThreshold as AboveThreshold
from nrjax.stopping import GaussianThreshold as GaussianThreshold
from nrjax.stopping import InteractiveAboveThreshold as InteractiveAboveThreshold
from nrjax.stopping import LaplaceTests as LaplaceTests
from nrjax.stopping import PublicThreshold as PublicThreshold
from nrjax.stopping import ReducedAboveThreshold as ReducedAboveThreshold
from nrjax.types import Guarantee as Guarantee
from nrjax.types import NoiseProcess as NoiseProcess
from nrjax.types import Schedule as Schedule
from nrjax.types import StoppingRule as StoppingRule
from nrjax.types import Utility as Utility
from nrjax.utilities import UtilitySequence as UtilitySequence

if TYPE_CHECKING:
    from nrjax import counts as counts
    from nrjax import datasets as datasets
    from nrjax import erm as erm
    from nrjax import papers as papers
    from nrjax import private_selection as private_selection
    from nrjax import questions as questions
    from nrjax import study as study
    from nrjax.choice.choosing import choose as choose
    from nrjax.choice.report import Choice as Choice
    from nrjax.statistics.sample import Distribution as Distribution
    from nrjax.statistics.sample import Sample as Sample
    from nrjax.study.case import Case as Case
    from nrjax.study.case import Curve as Curve
    from nrjax.study.case import Quantity as Quantity
    from nrjax.study.reporting import Reporting as Reporting
    from nrjax.study.results import Outcomes as Outcomes
    from nrjax.study.results import Results as Results
    from nrjax.study.study import Study as Study
else:
    # Slow to import and not needed by simulations, so they are imported at their first use.
    _LATER = {
        "choice.choosing": ("choose",),
        "choice.report": ("Choice",),
        "study.case": ("Case", "Curve", "Quantity"),
        "statistics.sample": ("Distribution", "Sample"),
        "study.reporting": ("Reporting",),
        "study.results": ("Outcomes", "Results"),
        "study.study": ("Study",),
    }
    _SOURCES = {name: f"nrjax.{file}" for file, names in _LATER.items() for name in names}
    _MODULES = (
        *("composition", "counts", "datasets", "erm", "guarantees", "papers"),
        *(
            "private_selection",
            "processes",
            "questions",
            "schedules",
            "stopping",
            "study",
            "utilities",
        ),
    )
    _DEFINED = [
        name
        for name, value in globals().items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("nrjax.")
    ]
    __all__ = sorted([*_DEFINED, *_SOURCES, *_MODULES])

    def __getattr__(name):
        """Import and return the class or function `name` (see `_SOURCES`)."""
        if name in _SOURCES:
            return getattr(importlib.import_module(_SOURCES[name]), name)
        raise AttributeError(f"module 'nrjax' has no attribute {name!r}")
