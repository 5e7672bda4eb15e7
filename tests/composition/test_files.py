"""States of filters and odometers as JSON and in a file: exact, and no spending is lost."""

import contextlib
import json
import os
import threading
from functools import partial

import jax
import jax.numpy as jnp
import pytest

from nrjax import composition as c
from nrjax.composition import files
from tests.composition.cases import FILTERS, ODOMETERS, SMALL, assert_same, granted, of_name, stack

OWNERS = (*FILTERS, *ODOMETERS)
ZCDP = c.ZCDPFilter(1.0, 1e-6, 1e-7)
TAKEN = c.ZCDP(0.003, delta=1e-8)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget.json"


def after_some_requests(owner, case):
    state = owner.init()
    for kind in case.kinds:
        state = owner.spend(state, SMALL[kind])
        state = state[0] if isinstance(state, tuple) else state
    return state


@pytest.mark.numerical
@of_name(OWNERS)
def test_round_trips_are_exact(case, path):
    owner, same = case.build(2.0, 1e-6), case.build(2.0, 1e-6)
    spent = after_some_requests(owner, case)
    for state in (owner.init(), spent.spent_or_void(spent.spent, jnp.asarray(False)), spent):
        text = c.to_json(owner, state)
        loaded = c.from_json(same, text)
        assert loaded == state
        assert_same(loaded, state)
        assert c.to_json(same, loaded) == text
    c.save(path, owner, state)
    assert c.load(path, same) == state
    with pytest.raises(ValueError, match=r"of the state must be .* Give the filter or odometer"):
        c.load(path, case.build(2.0, 1e-5) if case.name != "ex-post" else ZCDP)


@pytest.mark.numerical
def test_open_rounds_are_charged_what_they_reserved(path):
    filter, kind = c.UnifiedFilter(1.0, 1e-6), c.BrownianReduction
    state, round, ok = filter.open(filter.init(rounds=1), kind(1.0, 60.0))
    assert ok
    c.save(path, filter, state)
    loaded = c.load(path, filter, rounds=2)
    assert loaded.number.shape == (2,)
    assert filter.remaining(loaded) == filter.remaining(state)
    # The handle is void, also after another round was opened in the loaded state.
    other, new, ok = filter.open(loaded, kind(1.0, 120.0))
    assert ok
    assert new.number != round.number
    assert not filter.close(other, round, kind(1.0, 60.0))[1]
    closed = granted(filter.close(state, round, kind(1.0, 240.0)))
    c.save(path, filter, closed, previous=state)
    assert filter.remaining(c.load(path, filter)) == filter.remaining(closed)
    assert filter.remaining(closed) > filter.remaining(state)


TEXT = c.to_json(ZCDP, granted(ZCDP.take(ZCDP.init(), TAKEN)))


def forged(**changes):
    """Return the text with other entries and the right checksum."""
    content = {**json.loads(TEXT), **changes}
    del content["checksum"]
    return json.dumps({**content, "checksum": files._checksum(content)})


OTHER = "float32" if jax.config.jax_enable_x64 else "float64"  # type: ignore[attr-defined]


@pytest.mark.numerical
@pytest.mark.parametrize(
    ("owner", "text", "message"),
    [
        (ZCDP, "", "text must be JSON from to_json, unchanged"),
        (ZCDP, "[]", "its spending is unknown"),
        (ZCDP, "{}", "its spending is unknown"),
        (ZCDP, TEXT[:-20], "its spending is unknown"),
        (ZCDP, TEXT.replace('"total": [\n    "0.003', '"total": [\n    "0.002'), "is damaged"),
        (ZCDP, forged(format=2), r"format must be 1 \(got 2\)"),
        (ZCDP, forged(total=["nan", "0.0"]), "spending of the state must be a sum of costs"),
        (ZCDP, forged(total=["-0.1", "0.0"]), "its spending is unknown"),
        (ZCDP, forged(total=["0.003"]), "its spending is unknown"),
        (ZCDP, forged(residual=["-0.003", "0.0"]), "its spending is unknown"),
        (ZCDP, forged(dtype=OTHER), f"dtype of the state must be .*got '{OTHER}'"),
        (c.UnifiedFilter(1.0, 1e-6, 1e-7), TEXT, "kind of the state must be UnifiedFilter"),
        (c.ZCDPFilter(1.5, 1e-6, 1e-7), TEXT, r"epsilon of the state must be 1.5 \(got '1.0'\)"),
        (c.ZCDPFilter(1.0, 1e-6), TEXT, "approximation of the state must be 0.0"),
        (c.ZCDPFilter(1.0, 1e-6, 1e-7, "renyi"), TEXT, "conversion of the state must be renyi"),
        (c.ZCDPFilter(1.0, 1e-6, 1e-7, relation="add-remove"), TEXT, "relation of the state"),
    ],
)
def test_other_and_damaged_texts_are_refused(owner, text, message):
    assert text != TEXT or owner != ZCDP
    with pytest.raises(ValueError, match=message):
        c.from_json(owner, text)


def test_states_that_are_not_one_concrete_state_are_refused():
    with pytest.raises(ValueError, match="from its init"):
        c.to_json(ZCDP, c.ExPostFilter(1.0).init())
    with pytest.raises(ValueError, match="a single one"):
        c.to_json(ZCDP, stack([ZCDP.init()] * 2))
    with pytest.raises(ValueError, match="a concrete state"):
        jax.jit(lambda state: c.to_json(ZCDP, state) and state)(ZCDP.init())


def write_without_looking(path, owner, state, previous):
    new = path.with_name(str(threading.get_ident()))
    new.write_text(c.to_json(owner, state))
    new.replace(path)  # readers see whole states, else all threads would wait for one forever


def two_notebooks(path, save):
    """Let two notebooks take from one state. After an error the second one tries again."""
    c.save(path, ZCDP, ZCDP.init())
    states = [c.load(path, ZCDP) for _ in range(2)]
    for state in states:
        try:
            save(path, ZCDP, granted(ZCDP.take(state, TAKEN)), previous=state)
        except ValueError:
            state = c.load(path, ZCDP)
            save(path, ZCDP, granted(ZCDP.take(state, TAKEN)), previous=state)
    return float(c.load(path, ZCDP).spent.total[0])


def test_two_notebooks_lose_no_spending(path):
    assert two_notebooks(path, c.save) == pytest.approx(0.006)
    path.unlink()
    assert two_notebooks(path, write_without_looking) == pytest.approx(0.003)  # a planted fault


def test_a_file_is_replaced_only_as_a_whole_and_by_one_process(path, monkeypatch):
    state = ZCDP.init()
    new = granted(ZCDP.take(state, TAKEN))
    c.save(path, ZCDP, state)
    for previous in (None, new):
        with pytest.raises(ValueError, match="must be the file of the state `previous`"):
            c.save(path, ZCDP, new, previous=previous)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", partial(os.strerror, "killed"))
        with pytest.raises(TypeError):
            c.save(path, ZCDP, new, previous=state)
    assert os.listdir(path.parent) == [path.name]
    assert c.load(path, ZCDP) == state
    other = path.with_name(".budget.json.saving")
    other.touch()
    with pytest.raises(FileExistsError, match="saving"):
        c.save(path, ZCDP, new, previous=state)
    assert other.exists()
    path.write_text("damaged")
    other.unlink()
    with pytest.raises(ValueError, match="spending is unknown"):
        c.save(path, ZCDP, new, previous=state)
    assert path.read_text() == "damaged"


def saved_by_threads(path, save, takes=6):
    """Let four threads take from one file, each again after an error; return what was spent."""
    c.save(path, ZCDP, ZCDP.init())

    def work():
        done = 0
        while done < takes:
            with contextlib.suppress(ValueError, FileExistsError):
                state = c.load(path, ZCDP)
                save(path, ZCDP, granted(ZCDP.take(state, c.ZCDP(2.0**-14))), state)
                done += 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return float(c.load(path, ZCDP).spent.total[0]) * 2**14 / (4 * takes)


def test_threads_lose_no_spending(path):
    assert saved_by_threads(path, c.save) == 1
    path.unlink()
    assert saved_by_threads(path, write_without_looking) < 1  # a planted fault


def test_a_link_and_its_file_see_the_same_spending(path):
    """A replaced link would leave the old spending in the file that it names."""
    state, link = ZCDP.init(), path.with_name("link.json")
    new = granted(ZCDP.take(state, TAKEN))
    c.save(path, ZCDP, state)
    link.symlink_to(path)
    c.save(link, ZCDP, new, previous=state)
    assert link.is_symlink()
    assert c.load(path, ZCDP) == c.load(link, ZCDP) == new


def test_a_state_of_less_spending_is_refused(path):
    loaded = granted(ZCDP.take(ZCDP.init(), TAKEN))
    c.save(path, ZCDP, loaded)
    new = granted(ZCDP.take(ZCDP.init(), c.ZCDP(0.002)))
    with pytest.raises(ValueError, match="state must be one that was made from `previous`"):
        c.save(path, ZCDP, new, previous=loaded)
    assert c.load(path, ZCDP) == loaded
    nothing_left = loaded.spent_or_void(loaded.spent, jnp.asarray(False))
    c.save(path, ZCDP, nothing_left, previous=loaded)
    with pytest.raises(ValueError, match="made from `previous`"):
        c.save(path, ZCDP, loaded, previous=nothing_left)


def test_a_branch_from_an_older_state_is_refused(path):
    """Its sum may be larger, but it lacks what the file's state has spent or reserved."""
    filter, kind = c.UnifiedFilter(1.0, 1e-6), c.BrownianReduction
    c.save(path, filter, filter.init(rounds=2))
    older = c.load(path, filter, rounds=2)
    opened, round, _ = filter.open(older, kind(1.0, 120.0))
    taken = granted(filter.take(older, c.ZCDP(0.002)))
    for newer in (taken, opened):
        c.save(path, filter, newer, previous=older)
        branches = [granted(filter.take(older, c.ZCDP(0.01))), filter.open(older, kind(1.0, 60.0))]
        branches = [branches[0], branches[1][0], jax.jit(filter.take)(older, c.ZCDP(0.012))[0]]
        for branch in branches:
            with pytest.raises(
                ValueError, match=r"from `previous` .* loaded or saved, not from an"
            ):
                c.save(path, filter, branch, previous=newer)
        assert filter.remaining(c.load(path, filter)) == filter.remaining(newer)
        path.unlink()
        c.save(path, filter, older)
    # A round that reserved more than it cost lowers the sum.
    c.save(path, filter, opened, previous=older)
    closed = granted(filter.close(opened, round, kind(1.0, 240.0)))
    compiled = jax.jit(filter.take)(closed, c.ZCDP(0.001))[0]
    c.save(path, filter, closed, previous=opened)
    with pytest.raises(ValueError, match="made from `previous`"):  # made before `closed` was saved
        c.save(path, filter, compiled, previous=closed)
    again = jax.jit(filter.take)(c.load(path, filter), c.ZCDP(0.001))[0]
    c.save(path, filter, again, previous=closed)
    assert filter.remaining(c.load(path, filter)) == filter.remaining(again)
