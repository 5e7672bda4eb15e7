"""A stored case, and its arrays."""

import numpy as np

from nrjax.study.schema import Coordinate, Pass, StoredCase, Variable

NAME = "logistic-brownian-public"
MISSING = [np.nan, np.inf, -np.inf, 0.0, -0.0]
"""Values that could be mistaken for missing ones."""


def a_case(trials=10, chunk=4, dtype="float32"):
    outcome = Pass(trials, chunk, {"epsilon": Variable(dtype), "step": Variable("int32")})
    curve = Pass(
        6,
        3,
        {"utility": Variable(dtype, (("level", 2),), {"unit": "nat"})},
        {"epsilon": Coordinate("level", (0.1, 0.3), {"long_name": "ex-post epsilon"})},
    )
    return StoredCase(
        NAME, {"task": "logistic", "target": 0.41}, {"outcome": outcome, "curve": curve}
    )


def arrays(case, name, span):
    """Return arrays that tell variables and trials apart, and hold values like missing ones."""
    pass_ = case.passes[name]
    result = {}
    for number, (key, variable) in enumerate(pass_.variables.items()):
        shape = (pass_.trials, *(size for _, size in variable.dims))
        values = np.arange(np.prod(shape), dtype=variable.dtype).reshape(shape) + 7 * number + 1
        if values.dtype.kind == "f":
            values.flat[: len(MISSING)] = MISSING
        result[key] = values[span.start : span.stop]
    return result


def write_all(store, case, name):
    with store.writer() as writer:
        for span in store.pending(case.name, name):
            writer.write(case.name, name, span, arrays(case, name, span))
