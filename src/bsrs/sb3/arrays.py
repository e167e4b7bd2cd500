"""Observations as text, so that a model's file can hold them without a pickle."""

import base64
import io
import zlib
from typing import Any

import numpy as np
import torch


def encode(obs: Any) -> Any:
    """Return a tensor, or a dict of tensors, as text that JSON can hold."""
    if isinstance(obs, dict):
        return {name: encode(part) for name, part in obs.items()}
    file = io.BytesIO()
    np.save(file, obs.cpu().numpy(), allow_pickle=False)
    return base64.b64encode(zlib.compress(file.getvalue())).decode()


def decode(text: Any, device: Any) -> Any:
    """Return the tensors that `encode` was given."""
    if isinstance(text, dict):
        return {name: decode(part, device) for name, part in text.items()}
    array = np.load(io.BytesIO(zlib.decompress(base64.b64decode(text))), allow_pickle=False)
    return torch.from_numpy(array).to(device)
