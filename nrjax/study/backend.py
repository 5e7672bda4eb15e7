"""What makes `xarray.open_dataset(folder, engine="nrjax", group="case/pass")` work."""

import os
from typing import Any

import xarray
from xarray.backends import BackendEntrypoint

from nrjax.study import frame
from nrjax.study.checks import check_known
from nrjax.study.store import Store


class Backend(BackendEntrypoint):
    """The results of a run as xarray opens them."""

    description = "Open the results of a nrjax study"

    def open_dataset(
        self, filename_or_obj: Any, *, drop_variables: Any = None, group: str | None = None
    ) -> xarray.Dataset:
        """One pass of a case: `group` is "case/pass", or "case" for its outcomes."""
        store = Store.open(os.fspath(filename_or_obj))
        names = [f"{case}/{one}" for case, one, _ in store.passes()]
        known = f"{group}/outcome" if group in store.cases else group
        check_known("group", known, names)
        return _dataset(store, *str(known).split("/")).drop_vars(drop_variables or [])

    def open_groups_as_dict(
        self, filename_or_obj: Any, *, drop_variables: Any = None
    ) -> dict[str, xarray.Dataset]:
        """All passes of all cases, for `xarray.open_datatree`."""
        store = Store.open(os.fspath(filename_or_obj))
        found = {"/": xarray.Dataset(attrs=dict(store.settings.get("settings", {})))}
        for case, one, _ in store.passes():
            found[f"/{case}/{one}"] = _dataset(store, case, one).drop_vars(drop_variables or [])
        return found

    def open_datatree(self, filename_or_obj: Any, **options: Any) -> xarray.DataTree:
        """The same as a tree."""
        return xarray.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **options))


def _dataset(store: Store, case: str, name: str) -> xarray.Dataset:
    """Return one pass of a case, with the derived variables that `Results` has."""
    of = store.cases[case]
    return frame.dataset(of, name, frame.with_derived(of, name, store.arrays(case, name)))
