"""Bootstrapped reward shaping on top of Stable-Baselines3: one line more than without it."""

import sys

from stable_baselines3 import DQN

from bsrs.sb3 import shape

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
model = DQN("MlpPolicy", "CartPole-v1", verbose=1)
model = shape(model, eta=0.5)  # r + eta * (gamma * V(s') - V(s)), by the model's own V
model.learn(steps)
