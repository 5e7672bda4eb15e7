"""Error messages for packages that only the extras of nrjax install."""


def missing(error: ModuleNotFoundError, user: str, extra: str = "studies") -> ModuleNotFoundError:
    """Return the error that names the extra whose packages `user` needs.

    Args:
        error: raised by the import that failed.
        user: the feature that imports the package, such as "the command nrjax".
        extra: name of the extra in `pyproject.toml`.
    """
    command = f'run pip install ".[{extra}]" in the folder of the source code of nrjax'
    return ModuleNotFoundError(f"{user} needs {error.name}: {command}", name=error.name)
