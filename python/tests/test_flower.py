"""Chains on Flower, simulated and deployed with TLS and registered nodes, are those of `sample`,
bit for bit; a node that goes and comes back changes nothing.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import consilience
import pytest

pytest.importorskip("flwr", reason="Flower is not installed")

from cryptography.hazmat.primitives import serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402

ROOT = Path(__file__).parents[2]
APP = Path(__file__).parent / "flower_app"
BIN = Path(sys.executable).parent
SITES = {
    "north": {"mean": [1.0, -2.0], "precision": [[2.0, 0.3], [0.3, 1.0]]},
    "east": {"mean": [0.5, 0.25], "precision": [[1.0, -0.2], [-0.2, 3.0]]},
    "south": {"mean": [-1.0, 4.0], "precision": [[0.5, 0.0], [0.0, 0.7]]},
}
SAMPLERS = [
    {"name": "lmc", "step": 0.05},
    {"name": "qlsd++", "step": 0.05, "refresh": 5},
    {"name": "b-elf", "step": 0.02},
    {"name": "vr-fald*", "step": 0.05, "synchronise": {"probability": 0.5}},
    # a survey, a pilot and one block of proposals
    {"name": "imh"},
    # a survey, and exchanges for every draw: bits down, a gradient up, several gradients up
    {"name": "pcn", "step": 0.5},
    {"name": "mala", "step": 0.8, "compress": "qsgd(4)"},
    {"name": "hmc", "step": 0.6},
    {"name": "auto"},
]


def config_of(sampler, iterations=12):
    clients = [{"name": name, **client} for name, client in SITES.items()]
    return {
        "seed": 3,
        "seeds": "simulation",
        "target": {"model": "gaussian"},
        "client": clients,
        "sampler": sampler,
        "run": {"chains": 1, "iterations": iterations},
    }


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Flower:
    """Processes of one deployment, all under one folder. With certificates it speaks TLS, and nodes
    are known by their keys.
    """

    def __init__(self, folder, certificates=None):
        self.folder, self.port, self.processes, self.killed = folder, free_port(), [], []
        self.server = certificates and certificates / "server"
        self.env = os.environ | {
            "FLWR_HOME": str(folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "CONSILIENCE_TEST": str(folder),
            "CONSILIENCE_ALLOW_SIMULATION_SEEDS": "1",
            "CONSILIENCE_STATE": str(folder / "state"),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        (folder / "home").mkdir()
        trusted = (
            f'root-certificates = "{self.server}/ca.pem"' if self.server else "insecure = true"
        )
        text = (
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f"{trusted}\n"
        )
        (folder / "home" / "config.toml").write_text(text)

    def start(self, name, *arguments):
        log = (self.folder / f"{name}.log").open("ab")
        process = subprocess.Popen(
            [BIN / arguments[0], *arguments[1:]],
            env=self.env,
            cwd=self.folder,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        self.processes.append(process)
        return process

    def link(self, *more):
        papers = {
            "--ssl-ca-certfile": "ca.pem",
            "--ssl-certfile": "cert.pem",
            "--ssl-keyfile": "key.pem",
        }
        safety = (
            [part for flag, file in papers.items() for part in (flag, self.server / file)]
            + ["--enable-supernode-auth"]
            if self.server
            else ["--insecure"]
        )
        self.start(
            "superlink",
            "flower-superlink",
            *safety,
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--disable-runtime-dependency-installation",
            *more,
        )
        self.until(
            lambda: not socket.socket().connect_ex(("127.0.0.1", self.port)),
            "the SuperLink listens",
        )

    def register(self, site):
        """Make a node's key, and tell the SuperLink its public half."""
        key = ec.generate_private_key(ec.SECP384R1())
        private = self.folder / f"{site}.key"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.OpenSSH,
                serialization.NoEncryption(),
            )
        )
        public = private.with_suffix(".pub")
        public.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            )
        )
        subprocess.run(
            [BIN / "flwr", "supernode", "register", public, "here"],
            env=self.env,
            cwd=self.folder,
            check=True,
            capture_output=True,
        )

    def node(self, site):
        safety = (
            [
                "--root-certificates",
                self.server / "ca.pem",
                "--auth-supernode-private-key",
                self.folder / f"{site}.key",
            ]
            if self.server
            else ["--insecure"]
        )
        return self.start(
            site,
            "flower-supernode",
            *safety,
            "--superlink",
            f"127.0.0.1:{self.port}",
            "--port",
            str(free_port()),
            "--node-config",
            f'site="{site}"',
        )

    def run(self, configs, *more):
        (self.folder / "configs.json").write_text(json.dumps(configs))
        return self.start("run", "flwr", "run", APP, "here", "--stream", *more)

    def digests(self):
        file = self.folder / "digests"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, condition, what, seconds=240):
        end = time.monotonic() + seconds
        while not condition():
            ended = [
                process.args[0].name
                for process in self.processes
                if process.poll() is not None and process not in self.killed
            ]
            if condition():
                return
            assert not ended, f"{what}: not before {ended} ended\n{self.logs()}"
            assert time.monotonic() < end, f"{what}: not within {seconds} s\n{self.logs()}"
            time.sleep(0.2)

    def logs(self):
        return "\n".join(
            f"== {file.name}\n{file.read_text(errors='replace')[-3000:]}"
            for file in sorted(self.folder.glob("*.log"))
        )

    def end(self):
        for process in self.processes:
            kill(process)


def stop(process):
    """The SuperNode says goodbye, since a registered one that does not is refused for a minute when
    it comes back; what it has started is killed in the middle of its work.
    """
    process.terminate()
    process.wait(timeout=60)
    kill(process)


def kill(process):
    """It and all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


@contextmanager
def flower(folder, certificates=None):
    deployment = Flower(folder, certificates)
    try:
        yield deployment
    finally:
        deployment.end()
        shutil.rmtree(folder, ignore_errors=True)


def same(found, configs):
    expected = [
        [c["sampler"]["name"], consilience.sample(config=c, progress=False).digest] for c in configs
    ]
    assert found == expected


def test_a_simulation_has_the_same_chains(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation is not installed")
    configs = [config_of(sampler) for sampler in SAMPLERS]
    with flower(tmp_path) as deployment:
        deployment.link("--simulation")
        more = [
            "--federation-config",
            "num-supernodes=3 client-resources-num-cpus=1",
            "--run-config",
            'mode="message"',
        ]
        deployment.run(configs, *more)
        deployment.until(lambda: len(deployment.digests()) == len(configs), "all samplers are done")
        same(deployment.digests(), configs)


def test_a_deployment_with_tls_and_registered_nodes_has_the_same_chains_and_a_node_comes_back(
    tmp_path, command
):
    configs = [config_of(sampler, 300) for sampler in SAMPLERS] + [
        config_of({"name": "qlsd", "step": 0.01}, 1_500)
    ]
    command("certs", "papers", "--sites", ",".join(SITES), cwd=tmp_path)
    with flower(tmp_path, tmp_path / "papers") as deployment:
        deployment.link()
        for site in SITES:
            deployment.register(site)
        nodes = {site: deployment.node(site) for site in SITES}
        deployment.run(configs)
        deployment.until(
            lambda: len(deployment.digests()) == len(SAMPLERS), "all samplers but one are done"
        )
        # The last one takes a while: stop a site in the middle of it, and start it again.
        deployment.until(
            lambda: len(list((tmp_path / "state").glob("*/*/chain-1"))) >= 3 * len(configs),
            "the last run has begun",
        )
        deployment.killed.append(nodes["east"])
        stop(nodes["east"])
        deployment.node("east")
        deployment.until(lambda: len(deployment.digests()) == len(configs), "the run has gone on")
        same(deployment.digests(), configs)
        assert 'the site "east" is back' in deployment.logs()


def started_with(variable, value):
    """Processes that have this in their environment."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{variable}={value}".encode() in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="Flower leaves a SuperLink behind"
)
def test_the_example_runs_as_its_readme_says_offline_and_converges(tmp_path, command):
    pytest.importorskip("ray", reason="Flower's simulation is not installed")
    readme = (ROOT / "examples/flower/README.md").read_text()
    (exported,) = re.findall(r"^ +export (.*)$", readme, re.MULTILINE)
    exports = dict(re.findall(r"(\w+)=(\d)", exported))
    assert "FLWR_TELEMETRY_ENABLED" in exports
    (script,) = re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)
    shutil.copytree(ROOT / "examples/flower", tmp_path / "examples/flower")
    (tmp_path / "bin").mkdir()
    installed = tmp_path / "bin/consilience"  # as pip makes it
    lines = [
        f"#!{sys.executable}",
        "import sys",
        "from consilience.__main__ import main",
        "sys.exit(main())",
    ]
    installed.write_text("\n".join(lines))
    installed.chmod(0o755)
    home = tmp_path / "home"
    proxies = ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"]
    nowhere = dict.fromkeys(proxies, "http://127.0.0.1:9")
    here = dict.fromkeys(["NO_PROXY", "no_proxy"], "127.0.0.1,localhost")
    env = os.environ | exports | nowhere | here
    env |= {
        "FLWR_HOME": str(home),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(free_port()),
        "FLWR_LOCAL_CONTROL_API_PORT": str(free_port()),
        "CONSILIENCE_STATE": str(tmp_path / "state"),
        "UV_OFFLINE": "1",
        "UV_CACHE_DIR": str(tmp_path / "cache"),
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        shell = ["bash", "-e", "-c", script]
        done = subprocess.run(
            shell, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900
        )
        logs = [file.read_text(errors="replace")[-3000:] for file in home.glob("**/*.log")]
        assert done.returncode == 0, "\n".join([done.stdout[-6000:], done.stderr[-3000:], *logs])
    finally:
        for process in started_with("FLWR_HOME", home):
            os.kill(process, signal.SIGKILL)
    rows = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}
    assert f"rows: {', '.join(f'{site} {count}' for site, count in rows.items())}" in done.stdout
    kept = tmp_path / "examples/flower/runs/heart"
    log = (kept / "log.txt").read_text()
    assert all(f"site {site}: {count} rows" in log for site, count in rows.items())
    told = json.loads(command("summary", kept, "--json"))
    assert told["clients"] == list(rows) and told["warnings"] == []
    assert max(told["rhat"]) < 1.01 and min(told["ess_bulk"] + told["ess_tail"]) > 400
    assert len(told["rhat"]) == 22 and "sex: male" in done.stdout.split("consilience summary")[-1]


PRIVATE = {
    "seed": 1,
    "target": {
        "model": "logistic",
        "intercept": False,
        "prior": {"law": "gaussian", "variance": 2.0},
    },
    "client": [{"name": name} for name in ("north", "south", "east")],
    "sampler": {"name": "lmc", "step": 1e-4},
    "run": {"chains": 1, "iterations": 10},
    "privacy": {"epsilon": 3.0, "delta": 1e-6, "row_norm": 2.0},
}
ROWS = "a,b,y\n0.2,1.0,1\n-1.1,0.3,0\n0.5,-0.4,1\n"


class Here:
    """Nodes of this process in place of a grid: each is woken when a message comes."""

    def __init__(self, folder, more=lambda site: {}):
        from consilience.flower import client_app
        from flwr.app import Context, RecordDict
        from flwr.supercore.task_identity import TaskIdentity

        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 9
        self.app, self.replies, self.heard, self.troubled = client_app(), {}, b"", 0
        self.sites = [client["name"] for client in PRIVATE["client"]]
        self.mend = lambda site: None
        self.contexts = {}
        for node, site in enumerate(self.sites):
            (folder / f"{site}.csv").write_text(ROWS)
            config = {
                "site": site,
                "data": str(folder / f"{site}.csv"),
                "state": str(folder / site),
                "budget": "6,1e-5",
            } | more(site)
            self.contexts[node] = Context(1, node, config, RecordDict(), {})

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            ids.append(str(len(self.replies)))
            message.metadata.__dict__["_message_id"] = ids[-1]
            node = message.metadata.dst_node_id
            reply = self.app(message, self.contexts[node])
            self.replies[ids[-1]] = reply
            told = reply.content["consilience"]
            self.heard += bytes(told.get("letter", b"")) + str(dict(told)).encode()
            if told.get("trouble"):
                self.troubled += 1
                self.mend(self.sites[node])
        return ids

    def pull_messages(self, ids):
        return [self.replies[id] for id in ids]

    def send_and_receive(self, messages, timeout=None):
        return self.pull_messages(self.push_messages(messages))

    def run(self, config, **options):
        from consilience.flower import run
        from flwr.app import Context, RecordDict

        options = {"mode": "message", "silence": 0.3, "patience": 60.0} | options
        return run(self, Context(1, 9, {}, RecordDict(), options), config)


WRONG = ROWS.replace("0.3,0", "0.3,5712.5")


def test_a_node_that_cannot_go_on_is_asked_again_and_tells_no_row(tmp_path):
    here = Here(tmp_path)
    (tmp_path / "south.csv").write_text(WRONG)
    here.mend = lambda site: here.troubled > 2 and (tmp_path / f"{site}.csv").write_text(ROWS)
    assert here.run(PRIVATE).draws.shape == (1, 9, 2)
    assert here.troubled == 3
    assert b"does not go with what the config states" in here.heard
    assert b"5712.5" not in here.heard and b"has the label" not in here.heard


@pytest.mark.parametrize("options", [{"patience": 1.0}, {"quarantine": False}])
def test_a_run_is_given_up_where_a_node_is_not_mended(options, tmp_path):
    here = Here(tmp_path)
    (tmp_path / "south.csv").write_text(WRONG)
    with pytest.raises(consilience.Error, match='site "south"') as error:
        here.run(PRIVATE, **options)
    assert "5712.5" not in str(error.value)


def test_a_node_with_a_budget_takes_no_part_in_a_run_without_one(tmp_path):
    config = {key: part for key, part in PRIVATE.items() if key != "privacy"}
    with pytest.raises(consilience.Error, match=r"no \[privacy\]"):
        Here(tmp_path).run(config, patience=1.0)


def test_what_a_node_raises_stays_in_its_log(tmp_path):
    here = Here(tmp_path, lambda site: {"budget": "secret"} if site == "east" else {})
    with pytest.raises(consilience.Error, match='site "east".*(?s:.)*log of its node'):
        here.run(PRIVATE, patience=1.0)
    assert b"secret" not in here.heard


def test_nodes_with_certificates_make_a_secure_sum(tmp_path, command):
    command("certs", "papers", "--sites", "north,south,east", cwd=tmp_path)
    config = PRIVATE | {"privacy": PRIVATE["privacy"] | {"secure_sum": True}}
    here = Here(tmp_path, lambda site: {"certs": str(tmp_path / "papers" / site)})
    result = here.run(config)
    assert result.draws.shape == (1, 9, 2)
    # Masks that did not cancel would be steps of a hundred times the size, and more.
    assert abs(result.draws).max() < 1.0
    (tmp_path / "again").mkdir()
    with pytest.raises(consilience.Error, match="certs"):
        Here(tmp_path / "again").run(config, patience=1.0)
