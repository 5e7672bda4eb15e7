#!/usr/bin/env bash
# diffprivlib 0.6.6 requires scikit-learn>=1.4.0, without an upper bound. We expected its models to
# import with any such version. They import with scikit-learn 1.8.0, but with 1.9.1 the import
# fails, because diffprivlib.models.forest imports names that sklearn.tree._tree no longer has:
#     ImportError: cannot import name 'DOUBLE' from 'sklearn.tree._tree'
# The command fails if that changes. Needs Python 3.11 to 3.13, and takes about a minute.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"

imported() {  # with a version of scikit-learn: print "imported", or the last line of the error
    "$folder/env/bin/python" -m pip install --quiet diffprivlib==0.6.6 "scikit-learn==$1"
    { "$folder/env/bin/python" -W ignore -c 'import diffprivlib.models; print("imported")' 2>&1 ||
        true; } | tail -n 1
}

before=$(imported 1.8.0)
after=$(imported 1.9.1)
echo "scikit-learn 1.8.0: $before"
echo "scikit-learn 1.9.1: $after"
[ "$before" = imported ]
[[ "$after" == "ImportError: cannot import name 'DOUBLE' from 'sklearn.tree._tree'"* ]]
