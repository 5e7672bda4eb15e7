"""Pictures from stored results, never from a live run."""

try:
    import matplotlib.style  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'figures need {error.name}: pip install "nrjax[studies]"', name=error.name
    ) from error

from nrjax.plots.boundaries import boundaries
from nrjax.plots.ligett2017 import (
    accuracy,
    cheapest,
    norms,
    plot_ligett,
    privacy_loss,
    privacy_split,
)
from nrjax.plots.rogers2023 import budget, counts, plot_rogers, returned
from nrjax.plots.skellam_counts import loss_along_path, loss_cdf, plot_skellam_counts, realised_loss
from nrjax.plots.whitehouse2022 import (
    epsilon_cdf,
    epsilon_distribution,
    loss_against_epsilon,
    plot_whitehouse,
    ridge_constants,
)

__all__ = [
    "accuracy",
    "boundaries",
    "budget",
    "cheapest",
    "counts",
    "epsilon_cdf",
    "epsilon_distribution",
    "loss_against_epsilon",
    "loss_along_path",
    "loss_cdf",
    "norms",
    "plot_ligett",
    "plot_rogers",
    "plot_skellam_counts",
    "plot_whitehouse",
    "privacy_loss",
    "privacy_split",
    "realised_loss",
    "returned",
    "ridge_constants",
]
