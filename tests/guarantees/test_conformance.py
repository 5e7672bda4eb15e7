"""The conformance suite, run over every guarantee; and faults that it must see."""

import jax.numpy as jnp
import pytest

from nrjax.guarantees import PureGuarantee
from tests.conformance import guarantees
from tests.conformance.guarantees import GuaranteeCase

pytestmark = pytest.mark.numerical


@pytest.mark.parametrize("check", guarantees.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("case", guarantees.GUARANTEES, ids=lambda case: case.name)
def test_guarantee(case, check):
    check(case)


class Unsafe(PureGuarantee):
    """Rounds times down."""

    def time(self, epsilon):
        return super().time(epsilon) * (1 - 1e-5)


class Silent(PureGuarantee):
    """Answers anything."""

    def time(self, epsilon):
        return self.sensitivity / jnp.asarray(epsilon)


@pytest.mark.parametrize(
    ("check", "kind"),
    [(guarantees.check_inverse_is_safe, Unsafe), (guarantees.check_refuses, Silent)],
)
def test_planted_faults_are_seen(check, kind):
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(GuaranteeCase(kind.__name__, kind, 1e-4))
