"""XLA's fast-math, which simplifies exact sums and loses NaN, is refused before anything runs."""

import os
import subprocess
import sys

import pytest

CODE = """
import jax
import jax.numpy as jnp
import numpy as np
import nrjax

KEY = jax.random.key(0)
state = nrjax.UnifiedFilter(1.0, 1e-6)
doors = {
    "run_until": lambda: nrjax.run_until(KEY, nrjax.Interaction(
        value=120.0, process=nrjax.Laplace(()), guarantee=nrjax.PureGuarantee(1.0),
        schedule=nrjax.Grid([4.0, 2.0]), utility=nrjax.utilities.FunctionUtility(jnp.abs),
        rule=nrjax.PublicThreshold(jnp.inf))),
    "noise_path": lambda: nrjax.noise_path(KEY, nrjax.Laplace(()), [2.0, 1.0]),
    "take": lambda: state.take(state.init(), nrjax.composition.Pure(0.1)),
    "first_yes": lambda: nrjax.stopping.first_yes(
        KEY, nrjax.AboveThreshold(0.0, 1.0, 0.5), jnp.zeros(2)),
    "trial_key": lambda: jax.jit(lambda: nrjax.trial_key(KEY, 0))(),
}
for name, door in doors.items():
    try:
        jax.block_until_ready(door())
        print(name, "runs")
    except ValueError as error:
        print(name, "refused" if "XLA_FLAGS must be without fast-math" in str(error) else error)
"""


def doors(flags):
    """Return what happens at each door, by its name, in a process with these flags."""
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error", "-c", CODE]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return dict(line.split(maxsplit=1) for line in ended.stdout.splitlines())


def flag(name, value=""):
    return f"--xla_cpu_{name}{value}"


FAST = flag("enable_fast_math", "=true")
REFUSED = {
    "plain": FAST,
    "bare": flag("enable_fast_math"),
    "number": flag("enable_fast_math", "=1"),
    "last": f"{flag('enable_fast_math', '=false')} {FAST}",
    "honours": " ".join(
        [FAST, *(flag(f"fast_math_honor_{x}", "=true") for x in ("nans", "infs", "division"))]
    ),
    "loses NaN": f"{FAST} {flag('fast_math_honor_nans', '=false')}",
}
HARMLESS = {
    "off": flag("enable_fast_math", "=false"),
    "no effect": " ".join(
        flag(f"fast_math_honor_{x}", "=false") for x in ("nans", "infs", "division", "functions")
    ),
}
NAMES = [*REFUSED, *HARMLESS]


@pytest.mark.parametrize(
    "name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.long) for name in NAMES[1:])]
)
def test_flags_are_refused_by_every_door_or_change_nothing(name):
    found = doors({**REFUSED, **HARMLESS}[name])
    assert found == dict.fromkeys(found, "refused" if name in REFUSED else "runs")
    assert len(found) == 5


@pytest.mark.long
def test_flags_in_a_file_are_refused(tmp_path):
    (tmp_path / "flags").write_text(FAST)
    assert set(doors(str(tmp_path / "flags")).values()) == {"refused"}
