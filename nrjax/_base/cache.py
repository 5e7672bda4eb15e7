"""The folder that keeps downloads and compiled programs."""

import os
from pathlib import Path

from nrjax._base.extras import missing


def cache_folder() -> Path:
    """Return the cache folder: `NRJAX_CACHE`, else `nrjax` in the user's cache folder."""
    chosen = os.environ.get("NRJAX_CACHE")  # an empty value counts as unset
    if not chosen:
        try:
            import platformdirs
        except ModuleNotFoundError as error:
            raise missing(error.name, "nrjax.datasets") from error
        chosen = platformdirs.user_cache_dir("nrjax", False)
    return Path(chosen).expanduser()
