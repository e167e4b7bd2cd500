"""The adapter: one line on top of Stable-Baselines3, sb3-contrib and SBX, `model = bsrs.sb3.shape(model, eta=2.0)`.

Read `attach` first (the line itself), then `replay` (what happens to a sampled batch), `shaper` and `values` (where
each algorithm keeps its V). `rollout` is the same for on-policy algorithms, `saving` is what a model's file holds.
"""

from bsrs.errors import optional

optional("stable_baselines3", "bsrs.sb3", "sb3")

from bsrs.sb3.attach import ShapeCallback, shape, unshape, value  # noqa: E402
from bsrs.sb3.loading import load  # noqa: E402

__all__ = ["ShapeCallback", "load", "shape", "unshape", "value"]
