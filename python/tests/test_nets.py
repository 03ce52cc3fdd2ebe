"""Nets of the program's own in Python: the command's chains, predictions, and what is refused."""

import json
import tomllib

import consilience
import numpy as np
import pytest

TUMOURS = """
seed = 1
[target]
model = "net"
layers = "mlp(4)"
input = [30]
prior = { law = "gaussian", variance = { weight = 0.2, bias = 1.0 } }
[data]
name = "breast-cancer"
clients = 5
[sampler]
name = "vr-fald*"
step = 1e-4
batch = 8
[run]
chains = 2
iterations = 600
"""


def test_a_net_samples_the_chains_of_the_command(command, tmp_path):
    result = consilience.sample(config=TUMOURS, progress=False)
    (tmp_path / "run.toml").write_text(TUMOURS)
    told = json.loads(command("run", "run.toml", "--json", cwd=tmp_path))
    assert result.digest == told["digest"]
    # 30 x 4 + 4 weights and biases of the hidden layer, 4 x 2 + 2 of the classes
    assert result.draws.shape[0] == 2 and result.draws.shape[2] == 134
    assert np.isfinite(result.draws).all()
    other = tomllib.loads(TUMOURS)
    other["sampler"]["name"] = "qlsd++"
    assert consilience.sample(config=other, progress=False).digest != result.digest


def test_what_a_net_cannot_have_is_refused():
    for wrong, part in [
        ('layers = "mlp(4)"', "mlp"),
        ("input = [30]", "input"),
    ]:
        text = TUMOURS.replace(wrong, wrong.replace("mlp(4)", "mlq(4)").replace("[30]", "[31]"))
        with pytest.raises(consilience.ConfigError, match=part):
            consilience.sample(config=text, progress=False)
