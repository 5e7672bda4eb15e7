"""Reproductions of published experiments, each as a study with settings and a report."""

from functools import partial

from nrjax._base.lazy import submodule

OWN_TABLE = "regression"
"""Name of the study that fits a model to your own table."""

STUDIES = (
    OWN_TABLE,
    *("ligett2017", "whitehouse2022", "skellam_counts", "rogers2023", "tuning", "unknown_keys"),
)
"""Names of all studies of the package, in the order of the command's help."""

__getattr__ = partial(submodule, __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *STUDIES})
