"""Fixtures that several files use."""

import pytest

import nrjax


@pytest.fixture(scope="module")
def undrawn():
    """Skip figures, which take most of the time, except in one test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nrjax.Results, "write_figures", lambda self, writer: None)
        yield


@pytest.fixture
def store(tmp_path):
    from nrjax.study.store import Store
    from tests.study.stored import a_case

    return Store.create(tmp_path, {"seed": 0}, [a_case()])
