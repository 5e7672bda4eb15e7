"""How far one row can move what is released.

Neighbouring data sets differ in one row (replacement); the number of rows is public; rows have l2
norm at most 1.
"""

import math


def output_l2(
    rows: int, regularisation: float, lipschitz: float = 1.0, tolerance: float = 0.0
) -> float:
    """l2-sensitivity `2 L/(n lambda)` of a regularised minimiser (Chaudhuri et al. 2011).

    What is released is the point that a solver found, which is within `tolerance/lambda` of the
    minimiser, on both data sets: that adds `2 tolerance/lambda`.

    Args:
        rows: number of rows n.
        regularisation: lambda of `(lambda/2) |theta|^2`.
        lipschitz: Lipschitz constant L of the per-row loss in theta; 1 for the logistic loss.
        tolerance: largest gradient norm at which the solver stops.
    """
    return 2.0 * (lipschitz / rows + tolerance) / regularisation


def output_l1(
    rows: int,
    regularisation: float,
    dimension: int,
    lipschitz: float = 1.0,
    tolerance: float = 0.0,
) -> float:
    """l1-sensitivity of the same, `sqrt(d)` times the l2 one."""
    return math.sqrt(dimension) * output_l2(rows, regularisation, lipschitz, tolerance)
