"""The adapter to Stable-Baselines3, sb3-contrib and SBX: `model = bsrs.sb3.shape(model, eta=2.0)`.

To read the code, start with `attach` (the line itself), then `replay` (a sampled batch), `shaper`, and `values` (V of
each algorithm). `rollout` handles on-policy algorithms and `saving` the model's file.
"""

from bsrs.errors import optional

optional("stable_baselines3", "bsrs.sb3", "sb3")

from bsrs.sb3.attach import ShapeCallback, shape, unshape, value  # noqa: E402
from bsrs.sb3.loading import load  # noqa: E402

__all__ = ["ShapeCallback", "load", "shape", "unshape", "value"]
