"""Sites that bring a model of their own, in processes of their own: the chains of one process."""

import multiprocessing
import os
import subprocess
import threading

import consilience
import numpy as np
import pytest
from consilience import network

ROWS = {
    name: np.random.default_rng(k).normal(k, 1.0, size=5 + 4 * k)
    for k, name in enumerate(["north", "the south", "west"])
}
SAMPLERS = {
    "lmc": {"name": "lmc"},
    "qlsd++": {"name": "qlsd++", "batch": 3, "refresh": 7, "compress": "qsgd(16)"},
    "vr-fald*": {"name": "vr-fald*", "batch": 3},
}


def model_of(rows, name="robust 1", parameters=("mean", "centre")):
    """A mean, and a centre that outliers pull less, line by line."""

    def gradients(batch):
        for site, x, chosen, out in batch:
            y = rows[site][chosen]
            out[0] = np.sum(x[0] - y)
            away = x[1] - y
            out[1] = np.sum(away / np.sqrt(1.0 + away * away))

    sizes = {site: len(y) for site, y in rows.items()}
    return consilience.Model(list(parameters), sizes, gradients, name=name)


def config_of(sampler):
    return {
        "seed": 3,
        "seeds": "simulation",
        "target": {
            "model": "external",
            "model_name": "robust 1",
            "prior": {"law": "gaussian", "variance": 4.0},
        },
        "client": [{"name": name} for name in ROWS],
        "sampler": SAMPLERS[sampler],
        "run": {"chains": 2, "iterations": 40},
    }


def take_part(invitation, ends):
    """What a site's own process does: it has its own rows, and nobody else's."""
    invitation = network.Invitation.from_json(invitation)
    model = model_of({invitation.site: ROWS[invitation.site]})
    ends.put(network.join(invitation, model=model, allow_simulation_seeds=True, patience=60))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_three_processes_with_a_model_each_give_the_chains_of_one(sampler):
    config = config_of(sampler)
    expected = consilience.sample(model_of(ROWS), config=config, progress=False)
    spawn = multiprocessing.get_context("spawn")
    ends = spawn.Queue()
    with network.serve(config, host="localhost", listen="127.0.0.1", deadline=60) as serving:
        sites = [
            spawn.Process(target=take_part, args=(i.to_json(), ends))
            for i in serving.invitations.values()
        ]
        for site in sites:
            site.start()
        served = serving.result()
        assert [ends.get(timeout=60) for _ in sites] == [True] * 3
        for site in sites:
            site.join()
    assert served.digest == expected.digest and served.bits == expected.bits
    assert served.parameters == ["mean", "centre"]
    assert [site["rows"] for site in served.sites] == [5, 9, 13]


def serving_command(folder, config, *arguments):
    """`consilience serve`, and where it listens."""
    lines = ['seed = 3\nseeds = "simulation"\n[target]\nmodel = "external"']
    lines += ['model_name = "robust 1"\nprior = { law = "gaussian", variance = 4.0 }']
    lines += [f'[[client]]\nname = "{name}"' for name in ROWS]
    lines += ['[sampler]\nname = "lmc"\n[run]\nchains = 2\niterations = 40\n']
    (folder / config).write_text("\n".join(lines))
    command = [os.environ["CONSILIENCE"], "serve", config, "--listen", "127.0.0.1:0"]
    server = subprocess.Popen(
        [*command, "--deadline", "60", "--out", "run", *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in server.stderr:
        if line.startswith("listening on "):
            return server, line.removeprefix("listening on ").strip()
    raise AssertionError(f"the server ended with {server.wait()}")


@pytest.mark.parametrize("secure", [False, True])
def test_sites_with_models_join_the_command(secure, tmp_path, command):
    if secure:
        command("certs", "certs", "--sites", ",".join(ROWS), cwd=tmp_path)
    papers = ["--certs", "certs/server"] if secure else ["--insecure-loopback"]
    server, address = serving_command(tmp_path, "run.toml", *papers)
    ends = []

    def join(name):
        port = address.rpartition(":")[2]
        folders = {p.name: p for p in (tmp_path / "certs").glob("*")} if secure else {}
        certs = folders.get(name) or next(
            (p for key, p in folders.items() if key.startswith(name.split()[0])), None
        )
        model = model_of({name: ROWS[name]})
        where = f"localhost:{port}" if secure else address
        ends.append(
            network.join(
                where,
                site=name,
                certs=certs,
                model=model,
                allow_simulation_seeds=True,
                patience=60,
            )
        )

    threads = [threading.Thread(target=join, args=(name,)) for name in ROWS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.stderr.read()
    assert server.wait() == 0 and ends == [True] * 3
    served = consilience.load(tmp_path / "run")
    expected = consilience.sample(model_of(ROWS), config=config_of("lmc"), progress=False)
    assert served.digest == expected.digest


def by_post(config, bring, tmp_path=None, **options):
    """Serve a run letter by letter; `bring(name)` is what a site brings."""
    serving = network.serve(config, **options)
    wake = lambda name: network.Site(  # noqa: E731
        name, **bring(name), state=tmp_path, allow_simulation_seeds=True
    )
    sites = {name: wake(name) for name in serving.sites}
    while (result := serving.poll()) is None:
        for place, name in enumerate(serving.sites):
            if (letter := serving.collect(place)) is not None:
                # with a state, every letter finds a new process, and nobody holds the folder
                answer = (sites[name] if tmp_path is None else wake(name)).answer(letter)
                try:
                    serving.deliver(place, answer)
                except consilience.Refused:
                    pass  # the run is over
    return result


def test_a_site_that_forgets_all_but_its_state_asks_its_model_again(tmp_path):
    config = config_of("vr-fald*")
    expected = consilience.sample(model_of(ROWS), config=config, progress=False)
    posted = by_post(config, lambda name: {"model": model_of({name: ROWS[name]})}, tmp_path)
    assert posted.digest == expected.digest


def test_a_bare_function_says_its_rows_and_parameters():
    config = config_of("lmc")
    del config["target"]["model_name"]
    whole = model_of(ROWS, name=None)
    expected = consilience.sample(whole, config=config, progress=False)
    bring = lambda name: {  # noqa: E731
        "model": whole.gradients,
        "rows": len(ROWS[name]),
        "parameters": ["mean", "centre"],
    }
    assert by_post(config, bring).digest == expected.digest


@pytest.mark.parametrize(
    "change, why",
    [
        ({"name": "robust 2"}, 'its model\'s name is "robust 2", the config\'s is "robust 1"'),
        ({"parameters": ["mean"]}, "it has 1 parameters, the first client has 2"),
        ({"parameters": ["a", "b"]}, "its parameters are a, b, those of the first client mean"),
    ],
)
def test_models_that_differ_are_refused_by_name(change, why):
    def bring(name):
        rows = {name: ROWS[name]}
        return {"model": model_of(rows, **change) if name == "west" else model_of(rows)}

    with pytest.raises(consilience.Error) as error:
        by_post(config_of("lmc"), bring, quarantine=False)
    assert why in str(error.value) and '"west"' in str(error.value)


def test_whoever_joins_says_who_it_is():
    with pytest.raises(consilience.ConfigError, match="must know who joins"):
        network.join("localhost:7461", model=model_of(ROWS))
    invitation = network.Invitation("north", "localhost:7461", "", "0" * 64)
    with pytest.raises(consilience.ConfigError, match="says who is invited"):
        network.join(invitation, site="west")
    with pytest.raises(consilience.Error, match="without certificates nobody knows"):
        network.join("trials.example.org:7461", site="north", model=model_of(ROWS))


def test_what_a_site_cannot_bring_is_said_before_it_joins():
    with pytest.raises(consilience.ConfigError, match="no rows of the site \"north\""):
        network.Site("north", model=model_of({"west": ROWS["west"]}))
    with pytest.raises(consilience.ConfigError, match="knows its rows"):
        network.Site("north", ROWS["north"], model=model_of(ROWS))
    with pytest.raises(consilience.ConfigError, match="a function is no model yet"):
        network.Site("north", model=lambda batch: None)
    with pytest.raises(consilience.ConfigError, match="those of a model"):
        network.Site("north", parameters=3)


def bad_run(bad):
    """A run in which the model of one site does this: what that site and the server raise."""
    config = config_of("lmc")
    config["sampler"] = {"name": "lmc", "step": 0.01}
    raised = {}
    where = {"host": "localhost", "listen": "127.0.0.1", "deadline": 60}
    with network.serve(config, **where, quarantine=False) as serving:

        def join(invitation):
            model = model_of({invitation.site: ROWS[invitation.site]})
            if invitation.site == "west":
                model = consilience.Model(model.parameters, model.rows, bad, name=model.name)
            try:
                network.join(invitation, model=model, allow_simulation_seeds=True, patience=10)
            except Exception as error:
                raised[invitation.site] = error

        threads = [threading.Thread(target=join, args=(i,)) for i in serving.invitations.values()]
        for thread in threads:
            thread.start()
        with pytest.raises(consilience.Error) as error:
            serving.result()
        for thread in threads:
            thread.join()
    return raised["west"], str(error.value)


def test_a_gradient_that_is_no_number_is_named_with_its_site():
    calls = []

    def nan(batch):
        calls.append(None)
        batch.out[:, 1] = np.nan if len(calls) > 5 else 0.0

    own, served = bad_run(nan)
    assert isinstance(own, consilience.SamplingError)
    assert 'site "west"' in str(own) and "the gradient was asked at mean = " in str(own)
    assert "its part for centre is NaN" in str(own)
    assert 'site "west"' in served and "one that is no number" in served
    assert "centre" not in served  # what is made of rows stays at the site


def test_what_a_model_raises_comes_out_as_itself_and_the_server_hears_its_kind():
    def raises(batch):
        raise ZeroDivisionError("no rows here")

    own, served = bad_run(raises)
    assert isinstance(own, ZeroDivisionError) and "west" in own.__notes__[0]
    assert 'site "west" does not take part' in served and "its model gave no answer" in served
    assert "no rows here" not in served  # a model may speak of rows: the site alone hears it
