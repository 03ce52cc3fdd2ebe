"""Chains that are carried message by message are those of `sample`, bit for bit."""

import consilience
import numpy as np
import pytest
from consilience import protocol

rng = np.random.default_rng(11)


def site(rows):
    x = rng.normal(size=rows)
    return {"dose": x, "ill": (rng.random(rows) < 1 / (1 + np.exp(-x))).astype(float)}


SITES = {"north": site(30), "south": site(20), "west": site(25)}
SAMPLERS = {
    "lmc": {"name": "lmc"},
    "qlsd++": {"name": "qlsd++", "batch": 5, "refresh": 20, "precondition": True},
    "b-elf": {"name": "b-elf", "step": 0.02},
    "vr-fald*": {"name": "vr-fald*", "batch": 5},
}


def config_of(sampler, seeds="simulation"):
    return {
        "seed": 3,
        "seeds": seeds,
        "target": {"model": "logistic", "prior": {"law": "gaussian", "variance": 4.0}},
        "client": [{"name": name} for name in SITES],
        "sampler": SAMPLERS[sampler],
        "run": {"chains": 2, "iterations": 100},
    }


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_chains(sampler):
    config = config_of(sampler)
    expected = consilience.sample(config=config, clients=SITES, progress=False)
    server = protocol.Server(config)
    kept = {}
    while not server.finished:
        assert server.orders() == server.orders()
        for name, message in reversed(server.orders().items()):
            client = protocol.Client(config, name, SITES[name], state=kept.get(name))  # as if in a new process
            answer = client.answer(message)
            kept[name] = client.state()
            client.restore(kept[name])
            assert client.answer(message) == answer
            server.receive(name, answer)
    assert server.result.digest == expected.digest and server.draws is server.result.draws
    assert server.result.ledger == expected.ledger and server.result.bits == expected.bits


def test_serve_carries_by_a_function_and_raises_what_it_raises():
    config = config_of("vr-fald*", "private")
    sites = {name: protocol.Client(config, name, table) for name, table in SITES.items()}
    run = lambda: protocol.serve(config, lambda messages: {name: sites[name].answer(m) for name, m in messages.items()}, progress=False)  # noqa: E731
    first = run()
    assert np.isfinite(first.draws).all()
    sites = {name: protocol.Client(config, name, table) for name, table in SITES.items()}
    assert run().digest != first.digest  # each site's noise is its own

    def broken(messages):
        raise OSError("the line is dead")

    with pytest.raises(OSError, match="the line is dead"):
        protocol.serve(config, broken, progress=False)


def test_refusals_name_what_is_wrong():
    config = config_of("lmc")
    client = protocol.Client(config, "north", SITES["north"])
    with pytest.raises(consilience.Refused):
        client.answer(b"P\x00\x00\x00\x00nonsense")
    with pytest.raises(consilience.Refused, match="there is no site"):
        protocol.Client(config, "nord", SITES["north"])
    server = protocol.Server(config)
    with pytest.raises(consilience.Refused, match="was not asked"):
        server.receive("nord", b"")
    with pytest.raises(consilience.Error, match="has not finished"):
        server.result
    with pytest.raises(consilience.Refused, match="did not introduce|makes no sense"):
        for name in SITES:
            server.receive(name, b"Wx")
