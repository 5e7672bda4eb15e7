"""The command `nrjax audit`: whether the stated guarantees of a study hold."""

import dataclasses
from typing import Any

import tyro

from nrjax._base.validation import check
from nrjax.auditing.audit import audit, depends_on_value
from nrjax.cli import loading
from nrjax.engine.interaction import Interaction
from nrjax.study import devices


@dataclasses.dataclass(frozen=True)
class Audit:
    """Check by simulation whether the stated epsilon and delta of each case of a study hold.

    The exit status is 1 if a guarantee is violated. Private tests are not audited: for those write
    nrjax.audit(interaction, neighbour) in Python.
    """

    study: tyro.conf.Positional[str]
    """File of a study, such as my_study.py, or name of a paper's study."""
    delta: float | None = None
    """Delta to audit the stated epsilon at. By default, the guarantee's."""
    trials: int | None = None
    """Largest number of trials of each case."""
    level: float = 0.99
    """Probability with which each verdict is right."""
    seed: int = 0
    """Seed of all trials."""

    def __call__(self) -> None:
        """Print the verdict on each case."""
        source = loading.find(self.study)
        settings = None if source.settings is None else source.settings()
        devices.configure_jax(devices.cores())
        options: dict[str, Any] = {name: getattr(self, name) for name in _OPTIONS}
        verdicts = []
        for name, case in source.study(settings).cases.items():
            trial = getattr(case, "trial", case)
            if not isinstance(trial, Interaction) or trial.guarantee is None:
                print(f"{name}: Not audited, since it states no guarantee.")
                continue
            if depends_on_value(trial):
                print(f"{name}: Not audited: its noise needs the neighbouring data, in Python.")
                continue
            result = audit(trial, **options)
            verdicts.append(result.verdict)
            print(f"{name}:\n{result}")
        check(verdicts, "study", self.study, "a study with an interaction that can be audited")
        if "violated" in verdicts:
            raise SystemExit(1)


_OPTIONS = ("delta", "trials", "level", "seed")
