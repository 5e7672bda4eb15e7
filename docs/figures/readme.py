"""The figure of the README: one run, and the epsilon of 10,000 runs.

    python docs/figures/readme.py

It writes `readme.png` next to this file, and prints the numbers that the README states.
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from scipy.stats import chi2

import nrjax

HERE = Path(__file__).parent
BLUE, ORANGE = "#14476f", "#c1651a"
PENALTY, DELTA, EXCESS, SUCCESS = 0.05, 1e-6, 0.03, 0.95


def learning():
    """Return the regression of the README, its mechanism and its interaction."""
    data = nrjax.datasets.load("flights", "logistic")
    problem = nrjax.erm.LogisticProblem.fit(data.x, data.y, regularisation=PENALTY)
    mechanism = problem.brownian(delta=DELTA)
    return problem, mechanism, mechanism.until(at_least=-(1 + EXCESS) * problem.optimum_loss)


def theorem_epsilon(problem):
    """Return the epsilon of Ligett 2017, Theorem 3.3, for the README's excess loss."""
    alpha = EXCESS * problem.optimum_loss
    size = problem.rows, problem.dimension
    return float(nrjax.erm.theory.output_logistic_epsilon(alpha, *size, PENALTY))


def curvature_epsilon(problem, mechanism):
    """Return the epsilon of one Gaussian release that a bound on the curvature calls for.

    The gradient vanishes at the optimum, and no eigenvalue of the Hessian exceeds 1/4 + lambda for
    rows of norm 1. So noise z adds at most (1/4 + lambda) |z|^2 / 2 to the loss.
    """
    alpha = EXCESS * problem.optimum_loss
    time = 2 * alpha / ((0.25 + PENALTY) * chi2.ppf(SUCCESS, problem.dimension))
    return nrjax.FixedRelease.at_time(mechanism, time, "probabilistic").epsilon


def oracle_epsilon(mechanism, interaction, draws=20_000):
    """Return the epsilon at which one Gaussian release meets the target in 95 % of runs."""
    utility, value = interaction.utility, jnp.asarray(interaction.value.whole())
    noise = jax.random.normal(jax.random.key(1), (draws, *value.shape), value.dtype)

    @jax.jit
    def met(spread):
        def score(z):
            return utility.evaluate(utility.hypothesis(value + spread * z))

        return jnp.mean(jax.lax.map(score, noise, batch_size=500) >= interaction.rule.threshold)

    low, high = 0.01, 1.0
    for _ in range(20):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if met(middle) >= SUCCESS else (low, middle)
    return nrjax.FixedRelease.at_time(mechanism, low**2, "probabilistic").epsilon


def paths(interaction, problem, trials=300):
    """Return epsilon and the excess loss in percent along trials that never stop."""
    keys = jax.vmap(lambda trial: nrjax.trial_key(jax.random.key(0), trial))(jnp.arange(trials))
    path = jax.jit(lambda keys: jax.lax.map(lambda k: nrjax.scan_path(k, interaction), keys))(keys)
    return np.asarray(path.epsilon), 100 * (-np.asarray(path.utility) / problem.optimum_loss - 1)


def draw(epsilon, excess, outcome, lines):
    """Return the figure."""
    figure = Figure(figsize=(9.6, 3.7), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 1.25])
    low, high = np.quantile(excess, [0.05, 0.95], axis=0)
    left.fill_between(epsilon[0], low, high, color="0.88", label="90 % of runs")
    last = int(outcome.step[0])
    seen = slice(0, last + 1)
    left.plot(epsilon[0, seen], excess[0, seen], ".-", color=BLUE, label="releases of one run")
    left.plot(epsilon[0, last], excess[0, last], "o", ms=10, mfc="none", mec="black", mew=1.5)
    left.annotate(
        f"stops: ε = {epsilon[0, last]:.2f}",
        (epsilon[0, last], excess[0, last]),
        (0.3, 14),
        arrowprops={"arrowstyle": "-", "shrinkB": 6},
    )
    left.axhline(100 * EXCESS, color="black", lw=1, ls="--")
    left.text(0.0105, 100 * EXCESS * 0.93, "target: 3 %", va="top")
    left.set(xscale="log", yscale="log", xlim=(0.01, 2), ylim=(0.5, 400))
    left.set(xlabel="ε spent so far", ylabel="loss above the best model's (%)")
    left.set_title("One run: less and less noise", fontsize="medium")
    left.legend(loc="upper right", fontsize="small")

    edges = np.sqrt(epsilon[0, 1:] * epsilon[0, :-1])  # one bin per level
    right.hist(outcome.stopping_epsilon, edges, color=BLUE, edgecolor="white", lw=0.5)
    top = right.get_ylim()[1] * 1.45
    right.text(0.025, 0.3 * top, "noise reduction,\n10,000 runs", color=BLUE, fontsize="small")
    names = {
        "oracle": ("you would have\nto know the private\nanswer: unknowable", ":", "black"),
        "curvature": ("curvature of\nthe loss", "--", ORANGE),
        "theorem": ("theorem\n3.3 of Ligett\net al. 2017", "-.", ORANGE),
    }
    for name, (text, dash, colour) in names.items():
        right.axvline(lines[name], ymax=0.86, color=colour, ls=dash, lw=1.8)
        align, shift = ("right", 0.93) if name != "curvature" else ("left", 1.07)
        place = lines[name] * shift, 0.985 * top
        label = f"{lines[name]:.3g}: {text}"
        right.text(*place, label, va="top", ha=align, color=colour, fontsize="small")
    right.set(xscale="log", xlim=(0.022, 20), ylim=(0, top), yticks=[])
    ticks = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10]
    right.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    right.set(xlabel="ε (lines: one release, fixed in advance)", ylabel="runs")
    right.set_title("10,000 runs, and ε fixed in advance", fontsize="medium")
    return figure


def numbers(trials=10_000):
    """Return the problem, the interaction, the outcomes of trials and the README's epsilons."""
    problem, mechanism, interaction = learning()
    outcome = nrjax.simulate(jax.random.key(0), interaction, trials=trials)
    lines = {
        "oracle": oracle_epsilon(mechanism, interaction),
        "curvature": curvature_epsilon(problem, mechanism),
        "theorem": theorem_epsilon(problem),
    }
    return problem, interaction, outcome, lines


def main():
    """Write the figure and print the numbers."""
    problem, interaction, outcome, lines = numbers()
    style.use(HERE / "nrjax.mplstyle")
    figure = draw(*paths(interaction, problem), outcome, lines)
    figure.savefig(HERE / "readme.png", dpi=130)
    print(outcome.quantile([0.05, 0.5, 0.95]).round(3), lines)


if __name__ == "__main__":
    main()
