"""The end of a run: its reports, or how to resume it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from nrjax.study.results import Results
from nrjax.study.store import Store


def conclude(results: Results) -> None:
    """Write the summary, the report and the figures of finished results."""
    with explaining_resume(results.store), results.store.writer() as writer:
        results.write_reports(writer)


@contextlib.contextmanager
def explaining_resume(store: Store) -> Iterator[None]:
    """If the block raises OSError or KeyboardInterrupt, add how to resume to the message."""
    try:
        yield
    except KeyboardInterrupt:
        if store.is_deferred:
            raise KeyboardInterrupt(f"the earlier run in {store.folder} is unchanged") from None
        kept = f"finished trials are kept in {store.folder}: {store.resume_command} resumes the run"
        raise KeyboardInterrupt(kept) from None
    except OSError as error:
        if error.errno is None or store.is_deferred:
            raise
        message = f"{error.strerror}; then {store.resume_command} resumes the run"
        raise OSError(error.errno, message) from error
