#!/bin/sh
# Make the environment of `python -m benchmarks agents` for rejax, whose dependencies would replace ours.
set -eu
cd "$(dirname "$0")/.."
"${PYTHON:-python3}" -m venv .venv-rejax
.venv-rejax/bin/python -m pip install --quiet 'rejax==0.1.3' 'gymnax==0.0.9' 'jax[cpu]'
