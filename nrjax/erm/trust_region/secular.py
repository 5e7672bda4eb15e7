"""The trust-region problem of a tridiagonal matrix, for many problems (lanes) at once.

The problem is to minimise `(1/2) x'Tx - n x_1` over `|x| <= 1`. Every quadratic over a ball takes
this form in a basis whose first axis is along the linear term (`docs/proofs/regression.md`,
"Quadratics over a ball"). The lanes are the last axis of all arrays, since loops run along the
matrix.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

_TRIED = 8
"""Number of values of mu that are tried in one pass: two Newton steps and a grid."""


class SturmResult(NamedTuple):
    """The result of one factorisation of `T + mu I`. All arrays have the shape of mu.

    lambda_1 is the lowest eigenvalue of T, and x solves `(T + mu I) x = n e_1`.

    Attributes:
        definite: whether all pivots are positive.
        excess: if not definite, a number with `-lambda_1 >= mu - excess` (a Rayleigh quotient).
        norm: if definite, |x|.
        decrease: if definite, `-|x| / (d|x|/d mu)`, which is at least `mu + lambda_1`.
    """

    definite: Array
    excess: Array
    norm: Array
    decrease: Array


def _factorise(diagonal: Array, squares: Array, n: Array, mu: Array, tiny: float) -> SturmResult:
    """Factorise `T + mu I` from the last row up, with pivots `g_i = a_i + mu - e_i^2/g_{i+1}`.

    With derivatives in mu, `n^2 g_1'/g_1^2 = |x|^2`, and
    `n^2 (g_1'^2/g_1^3 - g_1''/(2 g_1^2)) = x'(T + mu I)^-1 x`.
    """

    def step(carry: tuple[Array, ...], row: tuple[Array, Array]) -> tuple[tuple[Array, ...], None]:
        pivot, slope, bend, definite, excess = carry
        a, square = row
        inverse = 1 / pivot
        ratio = square * inverse
        steep = ratio * inverse
        joined = steep > 0  # between decoupled blocks no overflow is passed on
        bend = jnp.where(joined, steep * (bend + slope * slope * inverse), 0)
        slope = 1 + jnp.where(joined, steep * slope, 0)
        pivot = a + mu - ratio
        bad = definite & ~(pivot > tiny)
        excess = jnp.where(bad, pivot / slope, excess)
        definite = definite & ~bad
        return (jnp.where(definite, pivot, 1), slope, bend, definite, excess), None

    zero = jnp.zeros_like(mu)
    start = (zero + 1, zero, zero, jnp.ones(mu.shape, bool), zero)
    (pivot, slope, bend, definite, excess), _ = jax.lax.scan(
        step, start, (diagonal, squares), reverse=True
    )
    inverse = 1 / pivot
    norm_square = (n * inverse) ** 2 * slope
    # |x|^2 / x'(T + mu I)^-1 x, from which n cancels.
    decrease = slope / (slope * slope * inverse + bend)
    decrease = jnp.where(jnp.isnan(decrease), 0, decrease)  # an overflow next to the pole
    return SturmResult(definite, excess, jnp.sqrt(norm_square), decrease)


class Bracket(NamedTuple):
    """The search state for the multiplier. All arrays but `passes` have shape (lanes,).

    Attributes:
        low: lower bound of the multiplier.
        high: upper bound of the multiplier, at which `T + high I` is definite and |x| <= 1.
        from_left: best Newton step from a tried mu with |x| > 1; not finite if there is none.
        from_right: best Newton step from a tried mu with |x| <= 1; not finite if there is none.
            By concavity no Newton step overshoots.
        multiplier: best multiplier so far.
        done: whether the search of the lane has finished.
        passes: number of passes so far.
    """

    low: Array
    high: Array
    from_left: Array
    from_right: Array
    multiplier: Array
    done: Array
    passes: Array


def multiplier(diagonal: Array, off_diagonal: Array, n: Array) -> Array:
    """Return the multiplier mu >= 0, to a few units in the last place of the largest entry.

    Let x solve `(T + mu I) x = n e_1`. At the result one of three conditions holds:

    * |x| is 1, to a few units in the last place.
    * `T + mu I` is definite and |x| <= 1, but not for a mu that is a few units smaller, close to
      minus the lowest eigenvalue of T.
    * mu is 0.

    The result is NaN if an input is not finite.

    Args:
        diagonal: diagonal of T, shape (size, lanes), of the order of 1.
        off_diagonal: off-diagonal of T, shape (size - 1, lanes), of the order of 1.
        n: size of the linear term, shape (lanes,), in [0, 1].
    """
    eps = float(jnp.finfo(diagonal.dtype).eps)
    tiny, width, tolerance = eps / 64, 4 * eps, 8 * eps
    most = math.ceil(math.log(4 / width) / math.log(_TRIED - 1)) + 3
    size = jnp.abs(jnp.pad(off_diagonal, ((1, 1), (0, 0))))
    squares = size[1:] ** 2
    # Gershgorin: T + (bound) I >= 0, and |x| <= n/(mu + lambda_1).
    bound = jnp.max(size[1:] + size[:-1] - diagonal, axis=0)
    high = jnp.maximum(bound, 0) + n + 8 * width
    finite = jnp.isfinite(high + jnp.sum(diagonal, axis=0))
    grid = (jnp.arange(1, _TRIED - 1, dtype=n.dtype) / (_TRIED - 1))[:, None]

    def unfinished(bracket: Bracket) -> Array:
        return jnp.any(~bracket.done) & (bracket.passes < most)

    def narrow(bracket: Bracket) -> Bracket:
        low, high = bracket.low, bracket.high
        inner = low + (high - low) * grid
        newton = jnp.stack([bracket.from_left, bracket.from_right])
        # Steps are clipped to just inside the bracket: at an end, rounding may hide their side.
        ends = low + width / 2, jnp.maximum(high - width / 2, low + width / 2)
        newton = jnp.where(jnp.isfinite(newton), jnp.clip(newton, *ends), inner[:2])
        # The first pass tries mu = 0: the minimum may be inside the ball.
        zero = jnp.where(bracket.passes == 0, 0, newton[:1])
        mu = jnp.concatenate([zero, newton[1:], inner])
        sturm = _factorise(diagonal, squares, n, mu, tiny)
        inside = sturm.definite & (sturm.norm <= 1)
        outside = sturm.definite & ~inside
        step = mu + sturm.decrease * (sturm.norm - 1)
        at_least = jnp.where(outside, mu, mu - sturm.excess)
        at_least = jnp.where(inside, mu - 1.001 * sturm.decrease, at_least)
        high = jnp.minimum(high, jnp.min(jnp.where(inside, mu, jnp.inf), axis=0))
        low = jnp.minimum(jnp.maximum(low, jnp.max(at_least, axis=0)), high)
        hit = jnp.min(
            jnp.where(sturm.definite & (jnp.abs(sturm.norm - 1) <= tolerance), mu, jnp.inf), axis=0
        )
        is_hit = jnp.isfinite(hit)
        interior = inside[0] & (mu[0] == 0)
        best = jnp.where(interior, 0, jnp.where(is_hit, hit, high))
        return Bracket(
            low=low,
            high=high,
            from_left=jnp.max(jnp.where(outside, step, -jnp.inf), axis=0),
            from_right=jnp.max(jnp.where(inside, step, -jnp.inf), axis=0),
            multiplier=jnp.where(bracket.done, bracket.multiplier, best),
            done=bracket.done | is_hit | interior | (high - low <= width),
            passes=bracket.passes + 1,
        )

    none = jnp.full_like(n, -jnp.inf)
    start = Bracket(jnp.zeros_like(n), high, none, none, high, ~finite, jnp.int32(0))
    return jnp.where(finite, jax.lax.while_loop(unfinished, narrow, start).multiplier, jnp.nan)


def minimiser(diagonal: Array, off_diagonal: Array, n: Array, mu: Array) -> tuple[Array, Array]:
    """Return the minimiser x, shape (size, lanes), and its multiplier, shape (lanes,).

    `mu` is the result of `multiplier`. The returned multiplier is 0 for a minimiser inside the
    ball. In the "hard case" of trust-region problems, or near it, the solution x for `mu` is
    shorter than 1. A multiple of the lowest eigenvector, from inverse iteration, is then added to
    reach the sphere.
    """
    length = diagonal.shape[0]
    eps = float(jnp.finfo(diagonal.dtype).eps)
    lower = jnp.pad(off_diagonal, ((0, 1), (0, 0)))  # row i couples i and i + 1

    def eliminate(above: tuple, row: tuple) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        pivot, _ = above
        a, e = row
        factor = e / pivot
        # Rounding may lose definiteness. A pivot keeps its sign: if a negative pivot were raised
        # above 0, all later pivots would become negative.
        pivot = a + mu - factor * e
        pivot = jnp.where(jnp.abs(pivot) < eps / 64, eps / 64, pivot)
        return (pivot, factor), (pivot, factor)

    ones = jnp.ones_like(mu)
    _, (pivots, factors) = jax.lax.scan(eliminate, (ones, ones), (diagonal, lower), reverse=True)
    above = jnp.pad(factors[:-1], ((1, 0), (0, 0)))  # row i: the factor between i - 1 and i

    def down(last: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        right, factor = row
        new = right - factor * last
        return new, new

    def solve(right: Array) -> Array:
        _, y = jax.lax.scan(down, 0 * ones, (right, factors), reverse=True)
        return jax.lax.scan(down, 0 * ones, (y / pivots, above))[1]

    first = jnp.zeros_like(diagonal).at[0].set(n / pivots[0])
    x = jax.lax.scan(down, 0 * ones, (first, above))[1]

    # Inverse iteration from x is a Newton step, finer than a change of mu. The added numbers are
    # arbitrary: they supply the eigenvector if x is orthogonal to it. A third step separates the
    # eigenvector from its neighbours.
    z = x + eps**0.5 * jnp.cos(1.7 * jnp.arange(length, dtype=mu.dtype) ** 2)[:, None]
    z = z * (1 / jnp.linalg.norm(z, axis=0))
    growth = ones
    for _ in range(3):
        z = solve(z)
        largest = jnp.max(jnp.abs(z), axis=0)
        z = z * (1 / largest)  # so that the squares do not overflow
        size = jnp.linalg.norm(z, axis=0)
        growth, z = size * largest, z * (1 / size)

    # Next to a singular matrix rounding may make x much too long, and inexact. Solving for the
    # part orthogonal to z avoids both.
    without = solve((-n * z[0] * z).at[0].add(n))
    x = jnp.where(jnp.linalg.norm(x, axis=0) > 2, without, x)

    norm = jnp.linalg.norm(x, axis=0)
    along = jnp.sum(x * z, axis=0)
    gap = (1 - norm) * (1 + norm)
    root = jnp.sqrt(jnp.maximum(along * along + gap, 0))
    # The smaller root t of |x + t z| = 1, which gives the lower objective.
    t = gap / jnp.where(along >= 0, along + root, along - root)
    # The residual |(T + mu I) x - n e_1| that each way of reaching the sphere adds.
    by_vector, by_scale = jnp.abs(t) / growth, jnp.abs(1 - norm) * n
    # Without a linear term x is 0, which cannot be scaled to the sphere.
    fixed = jnp.where((by_vector < by_scale) | (norm < 0.5), x + t * z, x)
    fixed = fixed * (1 / jnp.linalg.norm(fixed, axis=0))

    # If the bracket closed at 0, T is singular, and |x| need not be 1.
    interior = (mu <= 4 * eps) & (norm <= 1)
    return jnp.where(interior, x, fixed), jnp.where(interior, 0, mu)
