"""The table of `python -m benchmarks --platform`: its counts, and that it can be made."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import accelerators, hashes, kernels

ROOT = Path(__file__).parents[1]


def test_a_planted_kernel_is_seen():
    """A sort is never part of another kernel."""

    def launches(*more):
        def step(_, x):
            for function in (jnp.sin, *more):
                x = function(x)
            return x

        @jax.jit
        def run(x):
            def turn(x):
                return jax.lax.fori_loop(0, 6, step, x) + 1

            return jax.lax.while_loop(lambda x: jnp.sum(x) < 10, turn, x)

        text = run.lower(jnp.zeros(64)).compile().as_text()
        return kernels.Compiled(text).turn(6)

    few, many = launches(), launches(jnp.sort, jnp.cumsum)
    assert 1 <= few.step.kernels < many.step.kernels
    assert few.whole.kernels >= 6 * few.step.kernels + 1
    assert few.whole.decisions == many.whole.decisions == 1


@pytest.mark.long
def test_only_hashes_that_are_needed_are_counted():
    def run(key):
        unused = jax.random.normal(jax.random.fold_in(key, 3), (9,))
        del unused

        def step(carry):
            number, total = carry
            return number + 1, total + jnp.sum(
                jax.random.uniform(jax.random.fold_in(key, number), 5)
            )

        steps, total = jax.lax.while_loop(lambda carry: carry[0] < 4, step, (0, 0.0))
        many = jax.vmap(lambda key: jax.random.bits(key, (2,)))(jax.random.split(key, 3))
        return steps, total, many

    (steps, total, many), drawn = hashes.drawn(run, np.zeros(2, np.uint32))
    assert drawn == 4 + 4 * 5 + 3 + 3 * 2
    expected = jax.jit(run)(jax.random.key(0))
    np.testing.assert_array_equal(many, expected[2])  # the bits are JAX's
    assert (steps, total) == (4, pytest.approx(expected[1]))


def run_benchmarks(*arguments):
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=500, cwd=ROOT)


def cells(line):
    """Return the cells of a line of the table, by heading."""
    width = [max(len(heading), 9) for heading in accelerators.HEADINGS]
    ends = np.cumsum([columns + 2 for columns in width])
    return {
        heading: line[end - columns - 2 : end - 2].strip()
        for heading, columns, end in zip(accelerators.HEADINGS, width, ends, strict=True)
    }


def check_line(line):
    for heading, cell in cells(line).items():
        if heading not in ("loop", "lanes", "decisions/turn"):
            assert float(cell.rstrip("%")) >= (0 if heading == "of limit" else 1e-6), heading


@pytest.mark.long
def test_the_table_on_a_cpu():
    options = ("--inner-steps", "4", "8", "--lanes", "1024")
    ended = run_benchmarks("--platform", "cpu", "scalar", "--quick", *options)
    assert ended.returncode == 0, ended.stderr
    device, headings, four, eight, verdict = ended.stdout.splitlines()
    assert " x cpu: " in device
    assert cells(headings)["of limit"] == "of limit"
    for line, steps in ((four, 4), (eight, 8)):
        check_line(line)
        row = cells(line)
        assert (row["loop"], row["lanes"]) == ("scalar", "1024")
        assert row["steps/turn"] == str(steps)
        assert int(row["kernels/turn"]) > steps * float(row["kernels/step"]) > 0
        assert 1 <= float(row["hashes/step"]) < 1.5
    assert "of the limit" in verdict


@pytest.mark.long
def test_all_loops_on_a_cpu():
    ended = run_benchmarks("--platform", "cpu", "--quick")
    assert ended.returncode == 0, ended.stderr
    _, _, *lines, _ = ended.stdout.splitlines()
    assert [cells(line)["loop"] for line in lines] == list(accelerators.LOOPS)
    for line in lines:
        check_line(line)


def test_missing_devices_and_loops_are_refused_in_a_sentence(capsys):
    missing = "tpu" if jax.default_backend() == "gpu" else "gpu"
    ended = run_benchmarks("--platform", missing)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert f"--platform {missing}: JAX finds no such device here (needs jax[" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert command.main(["--platform", "cpu", "trust_region"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("There is no loop 'trust_region': choose among stepping, ")
