"""What is kept of the trials of `whitehouse2022` where summaries are kept."""

from nrjax.papers.whitehouse2022.settings import Settings
from nrjax.sketches import Fold, Sketch
from nrjax.study.folds import ending_folds, epsilon_folds, of_outcome, positive, signed

FIELDS = ("step", "status", "epsilon", "mechanism_epsilon", "test_epsilon", "privacy_loss")
"""Of an outcome. Not the utility: where nobody keeps it, certified stops need no evaluation."""


def outcome_sketch(settings: Settings, low: float) -> Sketch:
    """Of the trials that are stopped; `low` is the grid's first level."""
    # A test costs what was chosen, or as much as the releases.
    high = settings.highest_epsilon + max(settings.highest_epsilon, settings.test_epsilon)
    folds = {
        **epsilon_folds(low, high, settings.bin_width),
        **ending_folds(settings.levels),
        "mechanism_epsilon": positive(low, high),
        "test_epsilon": positive(low, high),
        "privacy_loss": signed(),
    }
    return Sketch(folds, derive=of_outcome)


def curve_sketch(levels: int) -> Sketch:
    """Of paths that are not: the mean loss at each level."""
    return Sketch({"utility": Fold(dim=("level", levels))})
