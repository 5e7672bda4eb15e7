"""The Pallas kernel of `benchmarks.one_kernel`, against the loop that XLA compiles."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

import nrjax
from benchmarks import one_kernel
from benchmarks.billion_trials import KEY
from benchmarks.million_trials import Closeness
from nrjax._base.threefry import unrolled_key
from nrjax.simulation import montecarlo

ROOT = Path(__file__).parents[1]
BOUNDARY = nrjax.LinearBoundary.tight_at_epsilon(1.0, 1.0, 1e-6)


def interaction(**changed):
    """Return an interaction, of which trials stop at any level, or at none."""
    parts = {
        "value": np.float32(3.0),
        "process": nrjax.Brownian(()),
        "guarantee": BOUNDARY,
        "schedule": nrjax.Grid.geometric(BOUNDARY, 0.6, 2.5, 15),  # an odd number of levels
        "utility": Closeness(),
        "rule": nrjax.PublicThreshold(-0.1),
        "shift": np.float32(1.0),
    }
    return nrjax.Interaction(**parts | changed)


@pytest.mark.long
@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs a CPU without contraction")
def test_outcomes_are_those_of_xla_to_the_bit():
    command = (
        "from tests.test_one_kernel import interaction, one_kernel; import json; "
        "print(json.dumps(one_kernel.differences(interaction(), 700)))"
    )
    # Without this flag XLA contracts products and sums, not the same ones in both programs.
    flags = {"XLA_FLAGS": "--xla_cpu_max_isa=AVX", "JAX_ENABLE_X64": "0"}
    arguments = [sys.executable, "-c", command]
    environment = {**os.environ, **flags}
    ended = subprocess.run(arguments, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == dict.fromkeys(nrjax.Outcome._fields, 0)


@pytest.mark.long
def test_trials_stop_where_those_of_xla_do():
    trial = interaction()
    found = one_kernel.differences(trial, 700)
    assert found["step"] == found["status"] == 0
    steps = montecarlo.outcomes(trial, 700).run(KEY, 700)["step"]
    assert steps.min() == 0
    assert steps.max() == 14


def test_other_trials_are_refused():
    private = {"rule": nrjax.AboveThreshold(-0.5, sensitivity=1.0, epsilon=1.0)}
    laplace = {"process": nrjax.Laplace(()), "guarantee": nrjax.PureGuarantee(1.0)}
    cases = [
        (private, "rule must draw no numbers"),
        (laplace, "process must be Brownian noise of one number"),
    ]
    if jax.config.jax_enable_x64:
        cases.append(({"value": 3.0}, r"dtype of value must be float32 \(got float64\)"))
    for changed, message in cases:
        plain = montecarlo.outcomes(interaction(**changed), 8)
        with pytest.raises(ValueError, match=message):
            one_kernel.with_one_kernel(plain).compile(KEY)


@pytest.mark.skipif(jax.__version_info__ < (0, 11, 2), reason="needs JAX 0.11.2")
def test_the_kernel_lowers_for_a_hopper_gpu():
    trial = interaction()
    options = montecarlo.outcomes(trial, 1024).options._replace(
        accelerated=True, tile=1024, lanes=1024, capacity=1024
    )

    def run(key):
        trials = jnp.uint32(0), jnp.int32(1000)
        return one_kernel.run(trial, unrolled_key(key), *trials, options)

    card = AbstractDevice("NVIDIA H100 80GB HBM3", None, "gpu")
    with use_abstract_mesh(AbstractMesh((1,), ("x",), abstract_device=card)):
        traced = jax.jit(run).trace(jax.eval_shape(lambda: jax.random.key(0)))
        lowered = traced.lower(lowering_platforms=("cuda",))
    assert lowered.as_text().count("@mosaic_gpu") == 1


@pytest.mark.long
def test_the_command_states_that_a_cpu_interprets_the_kernel(capsys):
    one_kernel.main(["--trials", "512", "--repeats", "1"])
    device, size, kept, summarised, differing = capsys.readouterr().out.splitlines()
    assert device == "Not the time of a compiled kernel: a cpu interprets it."
    assert size.startswith("512 trials on ")
    assert "one kernel" in kept
    assert "one kernel" in summarised
    assert differing.startswith("of 512 trials differ: ")
    assert "step 0, " in differing
