#!/usr/bin/env bash
# Builds the site into docs/_build/html. Needs the extra `docs`: pip install --editable ".[docs]".
# Checks first: every public name is in the reference, and the pages' code prints what they show.
# A second build repeats only what has changed.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python}
if [ -z "${PYTHON:-}" ] && [ -x .venv/bin/python ]; then python=.venv/bin/python; fi
export JAX_PLATFORMS=${JAX_PLATFORMS:-cpu}
export JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-$PWD/docs/_build/jax}
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.2

checked=docs/_build/checked
changed() {  # whether a page or a module is newer than the last check
    [ ! -f "$checked" ] || [ -n "$(find docs nrjax tests/test_docs.py -newer "$checked" -type f \
        \( -name '*.md' -o -name '*.py' -o -name '*.rst' \) \
        -not -path 'docs/_build/*' -not -path '*/generated/*' -print -quit)" ]
}
if changed; then
    "$python" -m pytest -q -p no:cacheprovider -m "long or not long" tests/test_docs.py
    mkdir -p docs/_build
    touch "$checked"
fi
"$python" -m sphinx -W -n --keep-going -b html -d docs/_build/doctrees docs docs/_build/html "$@"
echo "Open docs/_build/html/index.html"
