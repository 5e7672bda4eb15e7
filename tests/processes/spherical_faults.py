"""Planted faults of spherical Laplace noise."""

import nrjax
from nrjax.processes import spherical


class WrongRate(nrjax.SphericalLaplace):
    """Plant a fault: jumps have the rate d, not d + 1."""

    @property
    def _twice_shape(self):
        return max(super()._twice_shape - 1, 1)


class WrongKernel(nrjax.SphericalLaplace):
    """Plant a fault: only the first noise has the right law, since rewinds use the rate d."""

    def move(self, drawn, state, time):
        clock, kept, step = spherical._rewind_clock(
            drawn[1], state.clock, state.time, time, self._twice_shape - 1
        )
        return state._replace(value=kept * state.value + step * drawn[0], clock=clock, time=time)
