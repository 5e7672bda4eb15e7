"""The error for a missing package that an extra of nrjax installs."""


def missing(package: str | None, user: str, extra: str = "studies") -> ModuleNotFoundError:
    """Return an error whose message explains how to install a missing package.

    Args:
        package: name of the package that is not installed.
        user: the feature that needs it, such as "the command nrjax".
        extra: name of the extra in `pyproject.toml` that includes the package.
    """
    command = f'run pip install ".[{extra}]" in the folder of the source code of nrjax'
    return ModuleNotFoundError(f"{user} needs {package}: {command}", name=package)
