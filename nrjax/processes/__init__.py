"""Noise processes, whose noise is rewound from a large time (noise level) to smaller ones."""

from nrjax.processes.brownian import Brownian
from nrjax.processes.discrete_laplace import DiscreteLaplace
from nrjax.processes.exponential import Exponential
from nrjax.processes.laplace import IndependentLaplace, Laplace
from nrjax.processes.laplace_jumps import LaplaceJumps
from nrjax.processes.paths import noise_path, scan_noise
from nrjax.processes.skellam import Skellam
from nrjax.processes.spherical import SphericalLaplace

__all__ = [
    "Brownian",
    "DiscreteLaplace",
    "Exponential",
    "IndependentLaplace",
    "Laplace",
    "LaplaceJumps",
    "Skellam",
    "SphericalLaplace",
    "noise_path",
    "scan_noise",
]
