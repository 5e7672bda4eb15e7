"""Exact probabilities of discrete Laplace noise, by counting random words per integer."""

import jax
import jax.numpy as jnp
import numpy as np

from nrjax.processes import DiscreteLaplace
from nrjax.processes._kernel import exponential, uniform
from nrjax.processes.discrete_laplace import DiscreteLaplaceState, sizes

FAR = 2**17
"""Upper bound of the size of all integers."""


def counted(function, dtype, *arguments):
    """Return the probabilities of 0, 1, ... for a falling function of a word, by bisection."""
    kind = word_of(dtype)
    most = int(function(jnp.zeros(1, kind), *arguments)[0])
    wanted = np.arange(1 << most.bit_length())  # few shapes, few programs
    above = np.zeros(len(wanted), kind)  # number of words that lead above the integer
    for bit in reversed(range(8 * kind.itemsize)):
        more = above + kind.type(1 << bit)
        found = np.asarray(function(jnp.asarray(more - kind.type(1)), *arguments))
        above = np.where(found > wanted, more, above)
    every = 2.0 ** (8 * kind.itemsize)
    first = every - float(above[0])
    return np.append(first, (above[:-1] - above[1:]).astype(float)) / every


def word_of(dtype):
    """Return the dtype of the random words of a float dtype."""
    return np.dtype(f"uint{8 * np.dtype(dtype).itemsize}")


def even_words(dtype, number):
    """Yield evenly spaced words, and the fraction of all words that each represents."""
    kind = word_of(dtype)
    space = (np.iinfo(kind).max // number) + 1
    yield np.arange(number).astype(kind) * kind.type(space) + kind.type(space // 2), 1 / number


def every_word():
    """Yield all 2^32 words of 32 bits, 2^24 at a time, and the fraction of each."""
    for start in range(0, 2**32, 2**24):
        yield np.arange(start, start + 2**24, dtype=np.uint32), 2.0**-32


def histogram(function, words, *arguments):
    """Return the probabilities of the integers -`FAR`, ..., `FAR` under these words."""
    found = np.zeros(2 * FAR + 1)
    for some, share in words:
        values = np.asarray(function(jnp.asarray(some), *arguments)).astype(int)
        found += share * np.bincount(values + FAR, minlength=len(found))
    return found


@jax.jit
def geometric(word, time):
    """Return a geometric integer of ratio `exp(-1/time)` in float arithmetic."""
    return jnp.floor(time * exponential(word, time.dtype))


@jax.jit
def coin(word, time):
    """Return 1 with probability `q/(1 + q)`, `q = exp(-1/time)`."""
    return uniform(word, time.dtype) < 1 / (1 + jnp.exp(1 / time))


def first_law(time, rough=None):
    """Return `P(Z = k)`, k = 0, 1, ..., of a first draw with ideal last words.

    Args:
        time: time of the noise, a scalar array.
        rough: probabilities of the geometric integers that are added up; by default counted.
    """
    rough = counted(geometric, time.dtype, time) if rough is None else rough
    reach = np.convolve(np.convolve(rough, rough), counted(coin, time.dtype, time))
    return np.cumsum((reach / (2 * np.arange(len(reach)) + 1))[::-1])[::-1]


@jax.jit
def first_move(word, value, time, then):
    """Return the longest moves that a first word allows, with all other words of ones."""
    ones = jnp.full_like(word, ~word_of(time.dtype).type(0))
    state = DiscreteLaplaceState(jnp.full(word.shape, value), time, jnp.bool_(False))
    return DiscreteLaplace(word.shape).move((word, ones, ones), state, then).value


@jax.jit
def _more(word, scale):
    return sizes(jnp.zeros_like(scale), word, scale) - 1


def move_law(words, value, time, then):
    """Return `P(Z_then = j | Z_time = value)`, `value >= 0`, for j = -`FAR`, ..., `FAR`.

    Returns:
        Two arrays: with the first word only, and with all words, where the second word gives a
        counted geometric integer and the third an ideal uniform number.
    """
    first = histogram(first_move, words, jnp.asarray(value, time.dtype), time, then)

    def by_size(rough, scale):
        last = np.max(np.nonzero(rough)[0], initial=0) + 1
        more = counted(_more, time.dtype, scale)
        size, most = np.zeros(len(rough)), np.convolve(rough[:last], more[: len(rough)])
        size[: len(most)] = most[: len(rough)]
        size[-1] += rough.sum() - size.sum()
        return np.cumsum((size / np.arange(1, len(size) + 1))[::-1])[::-1]

    smooth, home = first.copy(), FAR + value
    outwards = then / (1 + then / time)
    smooth[FAR - 1 :: -1] = by_size(first[FAR - 1 :: -1], outwards)
    smooth[home + 1 :] = by_size(first[home + 1 :], outwards)
    if value and then < time:
        smooth[FAR:home] = by_size(first[FAR:home], then / ((time - then) / time))
    return first, smooth
