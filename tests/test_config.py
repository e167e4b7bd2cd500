from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest

from bsrs.config import from_dict, to_dict
from bsrs.config.agents import DQNConfig
from bsrs.config.settings import RunSettings
from bsrs.errors import BadInput


@dataclass(frozen=True)
class Example:
    name: str
    rate: float = 0.1
    steps: int = 10
    on: bool = True
    kind: Literal["a", "b"] = "a"
    etas: tuple[float, ...] = (0.0,)
    limit: int | None = None


def test_there_and_back():
    config = Example("x", etas=(0.5, 1.0), limit=3)
    assert from_dict(Example, to_dict(config)) == config
    assert from_dict(Example, {"name": "x", "rate": 1, "etas": [1, 2]}) == Example("x", rate=1.0, etas=(1.0, 2.0))


def test_identity_changes_with_every_field():
    changes = [
        {},
        {"env": "Acrobot-v1"},
        {"eta": 0.2},
        {"steps": 11},
        {"double": True},
        {"hidden": (8,)},
        {"n_step": 2},
    ]
    settings = [RunSettings.of(DQNConfig(**{"env": "CartPole-v1", **change})) for change in changes]
    assert len({each.identity for each in settings}) == len(set(settings)) == len(changes)
    assert settings[0] == RunSettings.of(DQNConfig(env="CartPole-v1"))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({}, "field 'name' is missing"),
        ({"name": "x", "stps": 3}, "unknown field 'stps': did you mean steps"),
        ({"name": "x", "on": "False"}, "field 'on' is 'False'; expected bool"),  # the quoted booleans of YAML files
        ({"name": "x", "on": 1}, "expected bool"),
        ({"name": "x", "steps": True}, "expected int"),
        ({"name": "x", "steps": 1.5}, "expected int"),
        ({"name": "x", "rate": "fast"}, "expected float"),
        ({"name": "x", "kind": "c"}, "expected one of a, b"),
        ({"name": "x", "etas": [1, "2"]}, "expected float"),
        ({"name": "x", "limit": "3"}, "expected int or nothing"),
    ],
)
def test_wrong_data_is_one_sentence(data, says):
    with pytest.raises(BadInput, match=says):
        from_dict(Example, data, where="file.toml")
