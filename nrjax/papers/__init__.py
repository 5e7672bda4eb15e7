"""Reproductions of published experiments, each as a study with settings and a report."""

from functools import partial

from nrjax._lazy import submodule

PAPERS = ("ligett2017", "whitehouse2022", "skellam_counts", "rogers2023")
"""Names of the studies, in the order in which the command's help lists them."""

__getattr__ = partial(submodule, __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *PAPERS})
