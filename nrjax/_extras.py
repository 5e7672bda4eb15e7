"""Error messages for packages that only the extras of nrjax install."""


def missing(package: str | None, user: str, extra: str = "studies") -> ModuleNotFoundError:
    """Return the error that says how to install a package of an extra.

    Args:
        package: name of the package that is not installed.
        user: the feature that needs it, such as "the command nrjax".
        extra: name of the extra in `pyproject.toml`.
    """
    command = f'run pip install ".[{extra}]" in the folder of the source code of nrjax'
    return ModuleNotFoundError(f"{user} needs {package}: {command}", name=package)
