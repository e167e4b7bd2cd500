"""Models that version 0.1 saved: the same networks under other names."""

import re

from torch import Tensor


def renamed(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights under today's names: `weight_1` (in, out) was `2.weight` (out, in)."""
    if not any(re.search(r"(^|/)weight_\d+$", name) for name in tensors):
        return tensors
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        prefix, slash, own = name.rpartition("/")
        if match := re.fullmatch(r"(weight|bias)_(\d+)", own):
            kind, layer = match[1], f"{2 * int(match[2])}"
            stack = tensor if prefix == "critics" else tensor.unsqueeze(0)  # (networks, in, out)
            for i, one in enumerate(stack):
                inner = f"each.{i}.network.{layer}.{kind}" if prefix == "critics" else f"{layer}.{kind}"
                found[f"{prefix}{slash}{inner}"] = one.T if kind == "weight" else one.flatten()
        else:
            found[name] = tensor
    return found
