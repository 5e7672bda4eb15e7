#!/usr/bin/env bash
# Builds the site into docs/_build/html. Needs the extra `docs`: pip install --editable ".[docs]".
# Checks first: every public name is in the reference, and the pages' code prints what they show.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
if [ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ]; then python=.venv/bin/python; fi
export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}
export JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-$PWD/docs/_build/jax}
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.2

"$python" -m pytest -q -p no:cacheprovider -m "long or not long" tests/test_docs.py
"$python" -m sphinx -W -n --keep-going -b html -d docs/_build/doctrees docs docs/_build/html "$@"
echo "Open docs/_build/html/index.html"
