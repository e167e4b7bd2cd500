"""Train on the envs of every package that is installed: `python tests/attack/envs.py [part of an id ...]`.

Each id is tried as a newcomer would: `bsrs train dqn`, then the algorithm that the refusal names. Prints a table; the
exit code is 1 after a traceback, a hang, or a refusal that does not say what to do.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

# module that registers the ids (empty: Gymnasium knows them) -> ids
ENVS = {
    "": "CartPole-v1 MountainCar-v0 Acrobot-v1 LunarLander-v3 FrozenLake-v1 CliffWalking-v1 Taxi-v4 Blackjack-v1"
    " Pendulum-v1 MountainCarContinuous-v0 BipedalWalker-v3 CarRacing-v3(max_episode_steps=50)",
    "mujoco:": "Hopper-v5 Reacher-v5 Pusher-v5 Ant-v5 HumanoidStandup-v5 InvertedDoublePendulum-v5",
    "ale_py:": "PongNoFrameskip-v4 ALE/Breakout-v5 Pong-v4",
    "minatar:": "MinAtar/Breakout-v1 MinAtar/Freeway-v0",
    "minigrid": "MiniGrid-Empty-5x5-v0 MiniGrid-DoorKey-8x8-v0 MiniGrid-FourRooms-v0 BabyAI-GoToObj-v0"
    " BabyAI-BossLevel-v0 MiniGrid-WFC-MazeSimple-v0",
    "highway_env": "highway-fast-v0 merge-v0 roundabout-v0 parking-v0 intersection-v0 racetrack-v0 lane-keeping-v0"
    " intersection-multi-agent-v0",
    "metaworld": "Meta-World/MT1 Meta-World/MT1(env_name='reach-v3') Meta-World/MT1(env_name='door-open-v3')"
    " Meta-World/goal_observable(env_name='push-v3') Meta-World/MT10",
    "gymnasium_robotics": "FetchReach-v4 FetchPush-v4 PointMaze_UMaze-v3 AntMaze_UMaze-v5 AdroitHandDoor-v1"
    " FrankaKitchen-v1 HandReach-v3",
    "mo_gymnasium": "deep-sea-treasure-v0 mo-mountaincar-v0 mo-hopper-v5 minecart-rgb-v0 four-room-v0",
    "flappy_bird_gymnasium": "FlappyBird-v0 FlappyBird-v0(use_lidar=False)",
    "popgym": "popgym-RepeatPreviousEasy-v0 popgym-AutoencodeEasy-v0 popgym-BattleshipEasy-v0"
    " popgym-ConcentrationEasy-v0 popgym-MineSweeperEasy-v0 popgym-NoisyPositionOnlyPendulumEasy-v0",
    "gym_anytrading": "stocks-v0 forex-v0",
    "gym_trading_env": "TradingEnv",
    "crafter": "CrafterReward-v1",
    "safety_gymnasium": "SafetyPointGoal1-v0",
    "gym_pusht": "gym_pusht/PushT-v0 gym_pusht/PushT-v0(obs_type='pixels')",
    "PyFlyt.gym_envs": "PyFlyt/QuadX-Hover-v4 PyFlyt/QuadX-Waypoints-v4 PyFlyt/Rocket-Landing-v4",
    "rware": "rware-tiny-2ag-v2",
    "lbforaging": "Foraging-5x5-2p-1f-v3",
    "tetris_gymnasium.envs": "tetris_gymnasium/Tetris",
    "gymnasium_2048": "gymnasium_2048/TwentyFortyEight-v0",
    "panda_gym": "PandaReach-v3 PandaPushJoints-v3",
    "gym_simplegrid": "SimpleGrid-4x4-v0 SimpleGrid-v0",
    "gymnasium_search_race": "gymnasium_search_race/MadPodRacing-v2 gymnasium_search_race/SearchRaceDiscrete-v3",
    "gym_multigrid": "multigrid-collect-single-v0 multigrid-collect-v0",
    "gym_xarm": "gym_xarm/XarmLift-v0",
    "gym_aloha": "gym_aloha/AlohaInsertion-v0",
    "gym_hil": "gym_hil/PandaPickCubeBase-v0",
    "buffalo_gym": "Buffalo-v0 ContextualBandit-v0 MultiBuffalo-v0 SymbolicStateBandit-v0",
    "sustaingym": "sustaingym/EVCharging-v0",
    "myosuite": "myoElbowPoseTaskFixed-v0",
    "gym_electric_motor": "Cont-CC-PMSM-v0 Finite-CC-PMSM-v0",
    "gym_saturation": "Vampire-v0",
    "miniworld": "MiniWorld-OneRoom-v0",
    "bluesky_gym": "DescentEnv-v0",
    "shimmy": "dm_control/cartpole-swingup-v0 dm_control/walker-walk-v0 bsuite/catch-v0",
    "gym_mtsim": "forex-hedge-v0",
    "gym_sokoban": "Sokoban-v0",
    "simglucose": "simglucose-adolescent2-v0",
    "pogema": "Pogema-v0",
    "bsuite": "bsuite/catch-v0",
    "jumanji": "Game2048-v1",
    "fancy_gym": "fancy/Reacher5d-v0",
}  # fmt: skip
TRAIN = (
    "--steps 300 --learning-starts 100 --buffer-size 500 --batch-size 16 --eval-every 0 --eval-episodes 1"
    " --checkpoint-every 0 --no-tensorboard --kernels off"
    " --train-freq 4 --gradient-steps 1"
).split()
SECONDS = 300
WAY_OUT = r"expected|another version|install \w|did you mean|prefix|--env-kwargs|shimmy|It has|\.py:\d+\)"


def main(wanted: list[str]) -> int:
    counts: Counter[str] = Counter()
    print("| id | algorithm | what happened |\n|---|---|---|")
    for module, ids in ENVS.items():
        if importlib.util.find_spec(module.rstrip(":").partition(".")[0] or "gymnasium") is None:
            continue
        for env in ids.split():
            name = f"{module}:{env}" if module and not module.endswith(":") else env
            if any(part in name for part in wanted or [name]):
                algorithm, happened = attempt(name)
                counts[happened.partition(":")[0]] += 1
                print(f"| {name} | {algorithm} | {happened} |", flush=True)
    print(f"\n{counts.total()} ids: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    return 1 if any(what.isupper() for what in counts) else 0


def attempt(env: str) -> tuple[str, str]:
    """The algorithm that was tried last, and what happened; what must not happen is in capitals."""
    happened = train("dqn", env)
    if "(TD3 and SAC take continuous ones)" not in happened:
        return "dqn", happened
    return "td3", train("td3", env)


def train(algorithm: str, env: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "bsrs", "train", algorithm, "--env", env, "--out", f"{folder}/run", *TRAIN]
        quiet = {**os.environ, "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd=folder, env=quiet)
        except subprocess.TimeoutExpired:
            return "TIMEOUT"
        lines = ended.stderr.strip().splitlines() or ["without a word"]
        if ended.returncode == 1:
            return f"TRACEBACK: {lines[-1]}"
        if ended.returncode == 0:
            score = re.search(r"score \S+", ended.stdout)
            return f"trained: {score[0] if score else ended.stdout.strip()}"
        said = [line for line in lines if line.startswith("bsrs: ")][-1].removeprefix("bsrs: ")
        refused = ended.returncode == 2 and re.search(WAY_OUT, said)
        return f"refused: {said}" if refused else f"NO WAY OUT: exit code {ended.returncode}, {said}"


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent]  # its own `calls`
    raise SystemExit(main(sys.argv[1:]))
