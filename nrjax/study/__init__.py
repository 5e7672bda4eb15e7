"""Studies, which simulate named cases with common random numbers and store the results."""

from functools import partial

from nrjax._base.lazy import submodule

__getattr__ = partial(submodule, __name__)
