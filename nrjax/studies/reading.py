"""Reading a pass of a store with xarray, and naming the file where that fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nrjax.studies import arrays
from nrjax.studies.folder import StoreError
from nrjax.studies.layout import Pass

if TYPE_CHECKING:
    import xarray

    from nrjax.studies.store import Store

__all__ = ["naming_damage", "opened"]


def opened(here: Path, layout: Pass, done: np.ndarray) -> xarray.Dataset:
    """The chunks of a pass that are done, with the coordinate `trial` or `chunk`.

    Loaded from disk as it is used, where all are done.

    Args:
        here: the folder of the pass.
        layout: the pass.
        done: which chunks are.
    """
    dataset = _as_long_as_said(here, layout)
    dataset = dataset.assign_coords({layout.axis: np.arange(layout.rows)})
    if done.all():
        return dataset
    keep = done
    if layout.axis == "trial":
        keep = np.repeat(done, layout.chunk)[: layout.trials]
    return dataset.load().isel({layout.axis: np.flatnonzero(keep)})


def _as_long_as_said(here: Path, layout: Pass) -> xarray.Dataset:
    """The variables and coordinates of a pass, as long as the layout says."""
    import xarray

    names = [*layout.variables, *layout.coordinates]

    def some(kept: Sequence[str]) -> xarray.Dataset:
        # Undecoded, so that no number is ever taken for a mark of missing data or for a date.
        dataset = xarray.open_zarr(
            here,
            decode_cf=False,
            consolidated=False,
            zarr_format=3,
            chunks=None,
            drop_variables=[*arrays.BESIDES, *(name for name in names if name not in kept)],
        )
        return dataset.isel({layout.axis: slice(layout.rows)}, missing_dims="ignore")

    # A process that was killed before it had added trials leaves arrays of several lengths.
    if arrays.fits(here, layout):
        dataset = some(names)
    else:
        dataset = xarray.merge([some([name]) for name in names], combine_attrs="drop")
    return dataset.set_coords(list(layout.coordinates))


@contextlib.contextmanager
def naming_damage(store: Store) -> Iterator[None]:
    """Where results cannot be read, say which file is at fault; Zarr only says that one is.

    To read every file beforehand would take as long again.

    Raises:
        DamagedError: a file is broken.
    """
    try:
        yield
    except (RuntimeError, ValueError) as error:
        if not isinstance(error, StoreError):
            for name, case in store.cases.items():
                for one, layout in case.passes.items():
                    here, done = store.path_of(name, one), store.done(name, one)
                    arrays.check_contents(here, layout, done)
        raise
