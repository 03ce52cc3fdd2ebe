"""Chains that are carried over streams, or letter by letter, are those of `sample`, bit for bit."""

import _thread
import datetime
import threading

import consilience
import numpy as np
import pytest
from consilience import network

rng = np.random.default_rng(11)


def site(rows):
    x = rng.normal(size=rows)
    return {"dose": x, "ill": (rng.random(rows) < 1 / (1 + np.exp(-x))).astype(float)}


SITES = {"north": site(30), "the south": site(20), "west": site(25)}
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
        "run": {"chains": 2, "iterations": 40},
    }


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_the_same_chains_over_streams_and_by_post(sampler, tmp_path):
    config = config_of(sampler)
    expected = consilience.sample(config=config, clients=SITES, progress=False)

    with network.serve(config, host="localhost", listen="127.0.0.1") as serving:
        ends = []
        # noqa: E731
        join = lambda i: ends.append(network.join(i, SITES[i.site], allow_simulation_seeds=True))
        threads = [threading.Thread(target=join, args=(i,)) for i in serving.invitations.values()]
        for thread in threads:
            thread.start()
        streamed = serving.result()
        for thread in threads:
            thread.join()
    assert (
        ends == [True] * 3 and streamed.digest == expected.digest and streamed.bits == expected.bits
    )

    serving = network.serve(config)
    forgets = sampler in (
        "qlsd++",
        "vr-fald*",
    )  # all but what is on disk, as if every letter had a process of its own
    wake = lambda name: network.Site(
        name, SITES[name], state=tmp_path if forgets else None, allow_simulation_seeds=True
    )  # noqa: E731
    awake = {name: wake(name) for name in serving.sites}
    while (posted := serving.poll()) is None:
        for place, name in enumerate(serving.sites):
            if (letter := serving.collect(place)) is not None:
                serving.deliver(place, (wake(name) if forgets else awake[name]).answer(letter))
    assert posted.digest == expected.digest and posted.bits == expected.bits


def test_a_site_that_must_not_be_simulated_says_so_and_ends_the_run():
    serving = network.serve(config_of("lmc"), quarantine=False)
    sites = [network.Site(name, SITES[name]) for name in serving.sites]
    with pytest.raises(consilience.Error, match='seeds = "simulation"'):
        while serving.poll() is None:
            for place, site in enumerate(sites):
                if (letter := serving.collect(place)) is not None:
                    try:
                        serving.deliver(place, site.answer(letter))
                    except consilience.Refused:
                        pass  # the run is over
    assert any(site.trouble and "private" in site.trouble for site in sites)


def test_a_site_that_cannot_go_on_is_named_and_waited_for_until_it_is_mended():
    config = config_of("lmc")
    serving = network.serve(config)
    allow = {"allow_simulation_seeds": True}
    sites = [network.Site(name, SITES[name], **allow) for name in serving.sites[:2]]
    sites.append(network.Site("west", SITES["west"]))  # it keeps its noise to itself
    blocked = []
    while (result := serving.poll()) is None:
        for place, site in enumerate(sites):
            if (letter := serving.collect(place)) is not None:
                serving.deliver(place, site.answer(letter))
        if not blocked and (blocked := serving.blocked):
            assert "west since" in blocked[0] and "private" in blocked[0], blocked
            assert "west" in serving.progress and serving.poll(0.3) is None
            sites[2] = network.Site("west", SITES["west"], **allow)
    assert blocked and serving.blocked == []
    expected = consilience.sample(config=config, clients=SITES, progress=False)
    assert result.digest == expected.digest


def test_a_run_that_waits_for_a_site_can_be_interrupted():
    config = config_of("lmc")
    with network.serve(config, host="localhost", listen="127.0.0.1") as serving:
        with pytest.raises(consilience.Error, match="private"):
            network.join(serving.invitations["west"], SITES["west"])
        while not serving.blocked:
            assert serving.poll(0.05) is None
        threading.Timer(0.5, _thread.interrupt_main).start()
        with pytest.raises(consilience.Error, match="stopped before it had draws"):
            serving.result()


def test_nonsense_is_refused_and_a_wrong_ticket_opens_nothing():
    with network.serve(config_of("lmc"), host="localhost", listen="127.0.0.1") as serving:
        invitation = serving.invitations["north"]
        assert invitation.ticket not in repr(invitation)
        forged = network.Invitation("north", invitation.server, invitation.authority, "0" * 64)
        with pytest.raises(consilience.Refused, match="none of this run"):
            network.join(forged, SITES["north"], patience=5)
        with pytest.raises(consilience.Error, match="served over a network"):
            serving.collect(0)
    with pytest.raises(consilience.Error, match="no invitation"):
        network.Invitation.from_json("{}")


def by_post(config, rows):
    """Serve a run to sites in this process, which bring these rows, or each its own."""
    serving = network.serve(config)
    own = rows if isinstance(rows, dict) else dict.fromkeys(serving.sites, rows)
    sites = [network.Site(name, own[name], allow_simulation_seeds=True) for name in serving.sites]
    while (result := serving.poll()) is None:
        for place, site in enumerate(sites):
            if (letter := serving.collect(place)) is not None:
                serving.deliver(place, site.answer(letter))
                assert site.trouble is None, site.trouble
    return result


def test_sites_may_bring_the_rows_that_are_built_in():
    settings = {"sampler": {"name": "lmc", "step": 0.001}, "run": {"chains": 1, "iterations": 20}}
    config = {"seeds": "simulation", "data": {"builtin": "heart-disease"}, **settings}
    result = by_post(config, network.BUILTIN)
    assert [site["rows"] for site in result.sites] == [303, 294, 123, 200]
    assert result.digest == consilience.sample(config=config, progress=False).digest
    assert repr(network.BUILTIN) == "consilience.network.BUILTIN"


def test_a_site_brings_no_built_in_rows_where_none_are_meant():
    config = config_of("lmc")
    with pytest.raises(AssertionError, match="the config names no built-in data"):
        by_post(config, network.BUILTIN)


def test_a_served_run_warns_too():
    config = {
        "seeds": "simulation",
        "data": {"builtin": "heart-disease"},
        "sampler": {"name": "lmc", "step": 0.001},
    }
    with pytest.warns(consilience.ConsilienceWarning) as raised:
        result = by_post(config | {"run": {"chains": 1, "iterations": 20}}, network.BUILTIN)
    assert [str(warning.message) for warning in raised] == result.warnings != []


def coded(tables, formula):
    """What sites with these tables are served, and what one process samples."""
    config = {
        "seeds": "simulation",
        "target": {"formula": formula},
        "client": [{"name": name} for name in tables],
        "sampler": {"name": "lmc"},
        "run": {"chains": 1, "iterations": 40},
    }
    result = by_post(config, tables)
    expected = consilience.sample(config=config, clients=tables, progress=False)
    assert result.parameters == expected.parameters
    assert result.digest == expected.digest and result.bits == expected.bits
    return result, expected


def test_sites_with_raw_tables_are_coded_by_one_formula():
    tables = {
        "north": {
            "age": [41.0, 63.0, None, 38.0, 44.5],
            "sex": ["f", "m", "m", "f", "m"],
            "ill": ["no", "yes", "no", "yes", "no"],
        },
        "south": {
            "ill": ["no", "yes", "yes", "no"],
            "age": [39.0, 70.0, 51.0, 62.0],
            "sex": ["m", "f", None, "m"],
        },
    }
    result, expected = coded(tables, "ill == yes ~ age + sex")
    new = {"age": [50.0, None], "sex": ["f", "m"]}
    assert np.array_equal(result.predict(new).mean, expected.predict(new).mean)


def test_words_of_digits_stay_words_at_a_site_and_dates_that_nobody_uses_do_no_harm():
    def table(wards, ages):
        return {
            "ward": np.array(wards),
            "age": ages,
            "ill": [float(k % 2) for k in range(len(ages))],
            "seen": np.datetime64("2024-02-01") + np.arange(len(ages)),
            "left": [datetime.date(2024, 3, 1), *[None] * (len(ages) - 1)],
        }

    tables = {
        "north": table(["007", "7", "007", "7", "11"], [41.0, 63.0, 57.0, 38.0, 44.5]),
        "south": table(["7", "007", "11", "7"], [39.0, 70.0, 51.0, 62.0]),
    }
    result, _ = coded(tables, "ill == 1 ~ age + C(ward)")
    assert {name for name in result.parameters if "ward" in name} == {"ward: 007", "ward: 11"}
    with pytest.raises(consilience.DataError, match="column `seen`: dates and times"):
        coded(tables, "ill == 1 ~ age + seen")


PRIVATE = {
    "seed": 1,
    "target": {
        "model": "logistic",
        "intercept": False,
        "prior": {"law": "gaussian", "variance": 2.0},
    },
    "client": [
        {"name": "north", "rows": [[0.2, 1.0, 1], [-1.1, 0.3, 0]]},
        {"name": "south", "rows": [[1.3, 0.2, 1], [0.4, -1.6, 0]]},
    ],
    "sampler": {"name": "lmc", "step": 1e-4},
    "run": {"chains": 1, "iterations": 30},
    "privacy": {"epsilon": 3.0, "delta": 1e-6, "row_norm": 2.0},
}


@pytest.mark.parametrize("budget", [(6.0, 1e-5), None, (2.0, 1e-5)])
def test_sites_with_a_budget_take_part_in_private_runs_and_others_say_why_not(budget, tmp_path):
    serving = network.serve(PRIVATE)
    said = set()

    def answer(name, letter):  # as a process of its own would, which lets go of its folder
        site = network.Site(name, state=tmp_path / name, budget=budget)
        answer = site.answer(letter)
        said.update({site.trouble} - {None})
        return answer

    while (result := serving.poll()) is None and not serving.blocked:
        for place, name in enumerate(serving.sites):
            if (letter := serving.collect(place)) is not None:
                serving.deliver(place, answer(name, letter))
    if budget == (6.0, 1e-5):
        assert result.draws.shape == (1, 27, 2) and not said
        return
    serving.stop()
    word = "budget=(6, 1e-5)" if budget is None else "may tell"
    assert said and all(word in why for why in said), said


def test_a_site_with_a_budget_takes_no_part_in_a_run_without_one(tmp_path):
    serving = network.serve({key: part for key, part in PRIVATE.items() if key != "privacy"})
    site = network.Site("north", state=tmp_path / "north", budget=(6.0, 1e-5))
    while not serving.blocked and serving.poll() is None:
        if (letter := serving.collect(0)) is not None:
            serving.deliver(0, site.answer(letter))
    serving.stop()
    assert "the server's config has no [privacy]" in site.trouble
    assert any("no [privacy]" in why for why in serving.blocked)


def test_a_secure_sum_is_made_with_certificates_that_the_server_did_not_make(tmp_path, command):
    command("certs", "papers", "--sites", "north,south", cwd=tmp_path)
    config = PRIVATE | {"privacy": PRIVATE["privacy"] | {"secure_sum": True}}
    with network.serve(config, host="localhost", listen="127.0.0.1", deadline=60) as serving:

        def join(invitation):
            papers, state = tmp_path / "papers" / invitation.site, tmp_path / invitation.site
            network.join(invitation, certs=papers, state=state, budget=(6.0, 1e-5))

        threads = [threading.Thread(target=join, args=(i,)) for i in serving.invitations.values()]
        for thread in threads:
            thread.start()
        result = serving.result()
        for thread in threads:
            thread.join()
    # Masks that did not cancel would be steps of a hundred times the size, and more.
    assert result.draws.shape == (1, 27, 2) and abs(result.draws).max() < 1.0
    serving = network.serve(config)
    while not serving.blocked and serving.poll() is None:
        for place, name in enumerate(serving.sites):
            if (letter := serving.collect(place)) is not None:
                site = network.Site(name, state=tmp_path / f"{name}-2", budget=(6.0, 1e-5))
                serving.deliver(place, site.answer(letter))
    assert any("certs=" in why for why in serving.blocked)
    serving.stop()


def test_a_budget_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no budget"):
        network.Site("north", budget=(0.0, 1e-5))
