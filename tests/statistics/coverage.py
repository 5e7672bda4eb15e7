"""The coverage of intervals in repeated samples."""

import numpy as np


def below_95(hits):
    """Return whether a fraction of hits is below 95 % by more than four standard errors."""
    return np.mean(hits) < 0.95 - 4 * np.sqrt(0.95 * 0.05 / len(hits))
