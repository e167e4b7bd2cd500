"""Weights and Adam's state as plain tensors by name: what checkpoints and models hold."""

import torch
from torch import Tensor, nn
from torch.optim import Adam


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """Return a copy of every parameter and buffer, by name."""
    return {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}


def check_weights(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """ValueError unless these are the weights of such a network."""
    own = network.state_dict()
    if own.keys() != tensors.keys():
        different = ", ".join(sorted(own.keys() ^ tensors.keys())[:3])
        raise ValueError(f"the saved network has other weights ({different}, ...)")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            raise ValueError(f"the saved {name} has shape {tuple(tensors[name].shape)}; expected {tuple(tensor.shape)}")


def load_weights(network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy saved weights into the network in place, so that whoever shares its memory sees them."""
    check_weights(network, tensors)
    network.load_state_dict(tensors)


def optimizer_state(optimizer: Adam, parameter: nn.Parameter) -> dict[str, Tensor]:
    """Return a parameter's state, made as Adam itself makes it at its first step."""
    state: dict[str, Tensor] = optimizer.state[parameter]
    if not state:
        fused = optimizer.defaults["fused"]
        state["step"] = torch.zeros((), device=parameter.device if fused else None)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
    return state


def adam_state_of(optimizer: Adam, network: nn.Module) -> dict[str, Tensor]:
    """Return a copy of what Adam remembers of a network."""
    return {
        f"{name}/{key}": tensor.clone()
        for name, parameter in network.named_parameters()
        for key, tensor in optimizer_state(optimizer, parameter).items()
    }


@torch.no_grad()
def load_adam_state(optimizer: Adam, network: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy what `adam_state_of` returned into the optimizer's state, in place."""
    for name, parameter in network.named_parameters():
        for key, tensor in optimizer_state(optimizer, parameter).items():
            tensor.copy_(tensors[f"{name}/{key}"])
