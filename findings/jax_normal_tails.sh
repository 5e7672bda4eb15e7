#!/usr/bin/env bash
# jax.random of jax 0.10.2 in float32. We expected that 2^28 normal draws hold about 10 beyond 5.5
# standard deviations, and that an exponential draw is never exactly 0, as float32 has numbers down to
# 1e-38. No normal draw exceeds 5.42: each is made from 23 random bits. For the same reason 32
# exponential draws of 2^28 are 0, and none exceeds 15.95, where about 32 are expected. A simulation of
# a probability such as 1e-8 then counts nothing, however many draws it makes. Laplace draws do reach
# 16.6 scales, with the expected 30 beyond 16:
#     normal: largest 5.420, 0 beyond 5.5
#     exponential: largest 15.942, 32 equal to 0
#     laplace: largest 16.636, 30 beyond 16
# The command fails if that changes. Needs Python 3.11 or later, and takes some two minutes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/python" -m pip install --quiet jax==0.10.2 jaxlib==0.10.2
cat > "$folder/draw.py" <<'END'
import jax
import jax.numpy as jnp
import numpy as np

SHAPE, BLOCKS = (2**22,), 64

@jax.jit
def block(key):
    laplace, normal, exponential = jax.random.split(key, 3)
    x = jnp.abs(jax.random.laplace(laplace, SHAPE))
    z = jnp.abs(jax.random.normal(normal, SHAPE))
    e = jax.random.exponential(exponential, SHAPE)
    counts = jnp.sum(x > 16), jnp.sum(z > 5.5), jnp.sum(e == 0)
    return jnp.array([jnp.max(x), jnp.max(z), jnp.max(e)]), jnp.array(counts)

keys = [jax.random.fold_in(jax.random.key(1), number) for number in range(BLOCKS)]
found = [tuple(map(np.asarray, block(key))) for key in keys]
x, z, e = np.max([largest for largest, _ in found], axis=0)
beyond, far, zero = np.sum([counts for _, counts in found], axis=0)
print(f"normal: largest {z:.3f}, {far} beyond 5.5")
print(f"exponential: largest {e:.3f}, {zero} equal to 0")
print(f"laplace: largest {x:.3f}, {beyond} beyond 16")
assert z < 5.43 and far == 0
assert e < 15.95 and 5 < zero < 80
assert x > 16 and 5 < beyond < 80
END
JAX_PLATFORMS=cpu "$folder/env/bin/python" "$folder/draw.py"
