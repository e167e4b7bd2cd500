"""rejax's DQN in a virtual environment of its own, where bsrs is not installed: answers requests on standard input.

Each line is a JSON list: ["run", steps] trains and answers the processor time that it took; the settings come first.
"""

import json
import os
import sys
import time
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def main() -> None:
    """Serve one contestant."""
    settings = json.loads(sys.stdin.readline())
    members = settings.pop("members")

    import jax
    from rejax import DQN

    algorithm = DQN.create(**settings, agent_kwargs={"activation": "relu"}, num_envs=1, num_epochs=1, ddqn=False)
    states = jax.vmap(algorithm.init_state)(jax.random.split(jax.random.PRNGKey(0), members))
    each = jax.vmap(algorithm.train_iteration)
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
