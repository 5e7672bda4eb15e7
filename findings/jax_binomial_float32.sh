#!/usr/bin/env bash
# jax.random.binomial of jax 0.10.2 in float32, its default dtype. We expected the standard deviation
# sqrt(n p (1 - p)), but for rounding, which is far below it in all three cases. It is right at a million
# trials, 4 % too small at thirty million (p = 0.3, counts near 9 million), and 18 % too large at a
# billion. Values are whole numbers and their mean looks right, so that nothing shows it. With
# JAX_ENABLE_X64=1 it is right:
#     float32 n=1000000 p=0.5: 1.003, n=30000000 p=0.3: 0.957, n=1000000000 p=0.5: 1.177
#     float64 n=1000000 p=0.5: 1.000, n=30000000 p=0.3: 0.999, n=1000000000 p=0.5: 0.999
# These are the ratios of the standard deviation of 20,000 draws to the formula, whose standard error
# is 0.005. The command fails if that changes. Needs Python 3.11 or later, and takes about a minute.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet jax==0.10.2 jaxlib==0.10.2
cat > "$folder/draw.py" <<'END'
import jax
import numpy as np

wide = jax.config.jax_enable_x64
ratios = []
for n, p in ((1e6, 0.5), (3e7, 0.3), (1e9, 0.5)):
    drawn = np.asarray(jax.random.binomial(jax.random.key(0), n, p, (20_000,)), np.float64)
    assert np.all(drawn == np.floor(drawn))
    assert abs(drawn.mean() / (n * p) - 1) < 1e-4
    ratios.append(drawn.std() / np.sqrt(n * p * (1 - p)))
    print(f"{'float64' if wide else 'float32'} n={n:.0f} p={p}: {ratios[-1]:.3f}")
right = [abs(ratio - 1) < 0.02 for ratio in ratios]
assert right == ([True, True, True] if wide else [True, False, False]), ratios
assert wide or (ratios[1] < 0.97 and ratios[2] > 1.1), ratios
END
for wide in 0 1; do
    JAX_PLATFORMS=cpu JAX_ENABLE_X64=$wide "$folder/env/bin/python" "$folder/draw.py"
done
