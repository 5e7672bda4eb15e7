"""Pictures from stored results, never from a live run."""

try:
    import matplotlib.style  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f'figures need {error.name}: pip install "nrjax[studies]"', name=error.name
    ) from error

from nrjax.plots.whitehouse2022 import (
    epsilon_distribution,
    loss_against_epsilon,
    plot_whitehouse,
)

__all__ = ["epsilon_distribution", "loss_against_epsilon", "plot_whitehouse"]
