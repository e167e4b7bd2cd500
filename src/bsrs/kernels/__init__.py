"""Compiled versions of whole gradient steps, for the common case on a CPU. The agents work without them.

`kernel_for` returns the kernel of an agent, or None where there is none: another device, a network of the user's own,
an option or a subclass that the kernels do not know. A test holds every kernel equal to its agent.
"""

import ctypes
import importlib
import platform
from typing import Any

# The agents that have one, exactly: a subclass may do something else.
_KERNELS = {
    "bsrs.agents.dqn:DQNAgent": "bsrs.kernels.dqn:DQNKernel",
    "bsrs.agents.td3:TD3Agent": "bsrs.kernels.td3:TD3Kernel",
    "bsrs.agents.sac:SACAgent": "bsrs.kernels.sac:SACKernel",
}


def kernel_for(agent: Any) -> Any:
    """Find the kernel that does what the agent does, if there is one."""
    name = _KERNELS.get(f"{type(agent).__module__}:{type(agent).__qualname__}")
    if name is None or agent.device.type != "cpu":
        return None
    module, _, kernel = name.partition(":")
    found = getattr(importlib.import_module(module), kernel)  # here, because numba takes a while to import
    return found(agent) if found.supports(agent) else None


def keep_freed_memory() -> None:
    """Let the C library keep what an update frees, because the next one asks for the same again.

    By default glibc returns it to the system, and an update spends a tenth of its time on page faults.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        m_trim_threshold, m_top_pad, m_mmap_threshold = -1, -2, -3
        libc.mallopt(m_mmap_threshold, 32 << 20)
        libc.mallopt(m_trim_threshold, 512 << 20)
        libc.mallopt(m_top_pad, 32 << 20)
