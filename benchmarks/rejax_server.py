"""rejax's DQN in a virtual environment of its own, where bsrs is not installed: answers requests on standard input.

Each line is a JSON list: ["run", steps] trains and answers the processor time that it took; the settings come first.
"""

import json
import os
import sys
import time
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


COUNTERS = ("global_step", "index", "full")
"""Parts of the state that are the same for all members. `jax.vmap(algorithm.train)` keeps one of each; a copy per
member would turn every condition on it into a choice between two whole replays."""


def main() -> None:
    """Serve one contestant."""
    settings = json.loads(sys.stdin.readline())
    members = settings.pop("members")

    import jax
    from rejax import DQN

    algorithm = DQN.create(**settings, agent_kwargs={"activation": "relu"}, num_envs=1, num_epochs=1, ddqn=False)
    keys = jax.random.split(jax.random.PRNGKey(0), members)
    paths, structure = jax.tree.flatten_with_path(algorithm.init_state(keys[0]))
    axes = [None if getattr(path[-1], "name", "") in COUNTERS else 0 for path, _ in paths]
    states = jax.vmap(lambda key: jax.tree.leaves(algorithm.init_state(key)), out_axes=axes)(keys)

    def train_one(leaves: Any) -> Any:
        return jax.tree.leaves(algorithm.train_iteration(jax.tree.unflatten(structure, leaves)))

    each = jax.vmap(train_one, in_axes=(axes,), out_axes=axes)
    compiled: dict[int, Any] = {}
    for line in sys.stdin:
        _, steps = json.loads(line)
        if steps not in compiled:
            train = jax.jit(lambda ts, n=steps: jax.lax.fori_loop(0, n, lambda _, ts: each(ts), ts))
            compiled[steps] = train.lower(states).compile()  # not timed
        start = time.process_time()
        states = jax.block_until_ready(compiled[steps](states))
        print(json.dumps(time.process_time() - start), flush=True)


main()
