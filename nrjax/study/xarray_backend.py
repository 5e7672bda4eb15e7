"""The xarray engine "nrjax", which opens the folder of a run.

For example, `xarray.open_dataset(folder, engine="nrjax", group="brownian/outcome")` opens the
outcomes of the case "brownian".
"""

import os
from typing import Any

import xarray
from xarray.backends import BackendEntrypoint

from nrjax.study import frame
from nrjax.study.checks import check_known
from nrjax.study.store import Store

_DECODERS = (
    *("mask_and_scale", "decode_times", "decode_timedelta", "use_cftime"),
    *("concat_characters", "decode_coords"),
)
"""Options of xarray that decode variables of files. Those of nrjax need no decoding."""


class Backend(BackendEntrypoint):
    """The backend that xarray uses for `engine="nrjax"`."""

    description = "Open the results of a nrjax study"
    open_dataset_parameters = ("filename_or_obj", "drop_variables", "group", *_DECODERS)

    def open_dataset(
        self,
        filename_or_obj: Any,
        *,
        drop_variables: Any = None,
        group: str | None = None,
        **decoders: Any,
    ) -> xarray.Dataset:
        """Open one pass of a case.

        `group` is "CASE/PASS", or the name of a case to open its outcomes. `decoders` are options
        of xarray, such as `decode_times`, which have no effect.
        """
        _check_decoders(decoders)
        store = Store.open(os.fspath(filename_or_obj))
        names = [f"{case}/{name}" for case, name, _ in store.passes()]
        path = f"{group}/outcome" if group in store.cases else group
        check_known("group", path, names)
        return _dataset(store, *str(path).split("/")).drop_vars(drop_variables or [])

    def open_groups_as_dict(
        self, filename_or_obj: Any, *, drop_variables: Any = None, **decoders: Any
    ) -> dict[str, xarray.Dataset]:
        """Open all passes of all cases, by path such as "/brownian/outcome"."""
        _check_decoders(decoders)
        store = Store.open(os.fspath(filename_or_obj))
        groups = {"/": xarray.Dataset(attrs=dict(store.settings.get("settings", {})))}
        for case, name, _ in store.passes():
            groups[f"/{case}/{name}"] = _dataset(store, case, name).drop_vars(drop_variables or [])
        return groups

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> xarray.DataTree:
        """Open all passes of all cases as a tree of datasets."""
        return xarray.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))


def _check_decoders(options: dict[str, Any]) -> None:
    for name in options:
        check_known("option", name, _DECODERS)


def _dataset(store: Store, case: str, name: str) -> xarray.Dataset:
    """Return the arrays of a case's pass ("outcome" or a curve), with derived variables."""
    stored = store.cases[case]
    return frame.dataset(stored, name, frame.with_derived(stored, name, store.arrays(case, name)))
