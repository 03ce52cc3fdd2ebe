"""Chains on Flower, simulated and deployed with TLS and registered nodes, are those of `sample`, bit for bit; a node that goes and comes back changes nothing."""

import json
import os
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
]


def config_of(sampler, iterations=12):
    clients = [{"name": name, **client} for name, client in SITES.items()]
    return {"seed": 3, "seeds": "simulation", "target": {"model": "gaussian"}, "client": clients, "sampler": sampler, "run": {"chains": 1, "iterations": iterations}}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Flower:
    """Processes of one deployment, all under one folder. With certificates it speaks TLS, and nodes are known by their keys."""

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
        trusted = f'root-certificates = "{self.server}/ca.pem"' if self.server else "insecure = true"
        text = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n{trusted}\n'
        (folder / "home" / "config.toml").write_text(text)

    def start(self, name, *arguments):
        log = (self.folder / f"{name}.log").open("ab")
        process = subprocess.Popen([BIN / arguments[0], *arguments[1:]], env=self.env, cwd=self.folder, stdout=log, stderr=log, start_new_session=True)
        self.processes.append(process)
        return process

    def link(self, *more):
        papers = {"--ssl-ca-certfile": "ca.pem", "--ssl-certfile": "cert.pem", "--ssl-keyfile": "key.pem"}
        safety = [part for flag, file in papers.items() for part in (flag, self.server / file)] + ["--enable-supernode-auth"] if self.server else ["--insecure"]
        self.start("superlink", "flower-superlink", *safety, "--host", "127.0.0.1", "--port", str(self.port), "--disable-runtime-dependency-installation", *more)
        self.until(lambda: not socket.socket().connect_ex(("127.0.0.1", self.port)), "the SuperLink listens")

    def register(self, site):
        """Make a node's key, and tell the SuperLink its public half."""
        key = ec.generate_private_key(ec.SECP384R1())
        private = self.folder / f"{site}.key"
        private.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()))
        public = private.with_suffix(".pub")
        public.write_bytes(key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH))
        subprocess.run([BIN / "flwr", "supernode", "register", public, "here"], env=self.env, cwd=self.folder, check=True, capture_output=True)

    def node(self, site):
        safety = ["--root-certificates", self.server / "ca.pem", "--auth-supernode-private-key", self.folder / f"{site}.key"] if self.server else ["--insecure"]
        return self.start(site, "flower-supernode", *safety, "--superlink", f"127.0.0.1:{self.port}", "--port", str(free_port()), "--node-config", f'site="{site}"')

    def run(self, configs, *more):
        (self.folder / "configs.json").write_text(json.dumps(configs))
        return self.start("run", "flwr", "run", APP, "here", "--stream", *more)

    def digests(self):
        file = self.folder / "digests"
        return [line.split() for line in file.read_text().splitlines()] if file.exists() else []

    def until(self, condition, what, seconds=240):
        end = time.monotonic() + seconds
        while not condition():
            ended = [process.args[0].name for process in self.processes if process.poll() is not None and process not in self.killed]
            if condition():
                return
            assert not ended, f"{what}: not before {ended} ended\n{self.logs()}"
            assert time.monotonic() < end, f"{what}: not within {seconds} s\n{self.logs()}"
            time.sleep(0.2)

    def logs(self):
        return "\n".join(f"== {file.name}\n{file.read_text(errors='replace')[-3000:]}" for file in sorted(self.folder.glob("*.log")))

    def end(self):
        for process in self.processes:
            kill(process)


def stop(process):
    """The SuperNode says goodbye, since a registered one that does not is refused for a minute when it comes back; what it has started is killed in the middle of its work."""
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
    expected = [[c["sampler"]["name"], consilience.sample(config=c, progress=False).digest] for c in configs]
    assert found == expected


def test_a_simulation_has_the_same_chains(tmp_path):
    pytest.importorskip("ray", reason="Flower's simulation is not installed")
    configs = [config_of(sampler) for sampler in SAMPLERS]
    with flower(tmp_path) as deployment:
        deployment.link("--simulation")
        more = ["--federation-config", "num-supernodes=3 client-resources-num-cpus=1", "--run-config", 'mode="message"']
        deployment.run(configs, *more)
        deployment.until(lambda: len(deployment.digests()) == len(configs), "all samplers are done")
        same(deployment.digests(), configs)


def test_a_deployment_with_tls_and_registered_nodes_has_the_same_chains_and_a_node_comes_back(tmp_path, command):
    configs = [config_of(sampler, 300) for sampler in SAMPLERS] + [config_of({"name": "qlsd", "step": 0.01}, 1_500)]
    command("certs", "papers", "--sites", ",".join(SITES), cwd=tmp_path)
    with flower(tmp_path, tmp_path / "papers") as deployment:
        deployment.link()
        for site in SITES:
            deployment.register(site)
        nodes = {site: deployment.node(site) for site in SITES}
        deployment.run(configs)
        deployment.until(lambda: len(deployment.digests()) == len(SAMPLERS), "four samplers are done")
        # The last one takes a while: stop a site in the middle of it, and start it again.
        deployment.until(lambda: len(list((tmp_path / "state").glob("*/*/chain-1"))) >= 3 * len(configs), "the last run has begun")
        deployment.killed.append(nodes["east"])
        stop(nodes["east"])
        deployment.node("east")
        deployment.until(lambda: len(deployment.digests()) == len(configs), "the run has gone on")
        same(deployment.digests(), configs)
        assert 'the site "east" is back' in deployment.logs()
