"""Run any sampler on a Flower deployment, or in Flower's simulation: a ServerApp and a ClientApp.

``session`` mode, the default: one Flower message to each node hands over an invitation (address,
authority, one-time ticket), and the rounds flow over our own encrypted stream; Flower keeps
identity, start, stop and health. ``message`` mode: every round is a Flower message, for networks
that let nothing else through and for simulations. The chains are the same, bit for bit, and are
those of :func:`consilience.sample` where the config says ``seeds = "simulation"``.

A project needs two lines (``examples/flower`` is one)::

    app = consilience.flower.server_app(Path(__file__).with_name("sites.toml"))     # server_app.py
    app = consilience.flower.client_app()                                           # client_app.py

Run config (``flwr run . --run-config ...``): ``mode``, ``host`` (under which the nodes find the
server's stream), ``listen``, ``port``, ``state`` (a folder of the server's), ``out`` (where the run
is kept), ``patience`` (how many seconds a run waits for a site that is missing or cannot go on),
``silence`` (after how many seconds a missing site is looked for, and one that cannot go on is asked
again), ``quarantine`` (``false``: a site that cannot go on ends the run at once).

Node config (``flower-supernode --node-config ...``): ``site`` (its name in the config), ``data``
(its file), ``state`` (its own folder: Flower forgets), ``budget`` (what it may tell of one row in
all its runs, such as ``"6,1e-5"``), ``certs`` (the folder of its certificate, for secure sums),
``allow-simulation-seeds``. Where a node names no site, ``partition-id`` counts them, as in a
simulation.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

from . import network
from ._result import Result
from ._sample import Config
from .errors import Error, Refused

__all__ = ["client_app", "run", "server_app"]

RECORD = "consilience"
INTRODUCE, SESSION, LETTER = "introduce", "session", "letter"
#: How many seconds a site may be unheard of before its node is looked for, if nobody says
#: otherwise.
SILENCE = 30.0
#: How many seconds a node may take to say which site it is.
INTRODUCTION = 30.0
#: How many seconds nodes are waited for, and missing ones too, if nobody says otherwise.
PATIENCE = 300.0
#: How often the log says how far the run is.
LINES = 30.0
#: What the server is told of what went wrong at a node. The rest may be made of rows.
TROUBLE = "what is wrong stands in the log of its node"


def server_app(config: Config, **settings: Any) -> ServerApp:
    """A ServerApp that serves the run of a config; ``**settings`` change it as in
    :func:`consilience.sample`.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        result = run(grid, context, config, **settings)
        rows = ", ".join(f"{site['name']} {site['rows']}" for site in result.sites)
        log(INFO, "consilience: rows: %s", rows)
        log(INFO, "consilience: the posterior\n%r", result.summary())
        log(INFO, "consilience: digest %s", result.digest)
        context.state[RECORD] = ConfigRecord(
            {"digest": result.digest, "sampler": result.sampler, "draws": list(result.draws.shape)}
        )
        if out := context.run_config.get("out"):
            log(INFO, "consilience: the run is kept in %s", result.save(str(out)).resolve())

    return app


def run(grid: Grid, context: Context, config: Config, **settings: Any) -> Result:
    """Serve one run from a ServerApp of your own. The options are those of the run config."""
    mode = str(context.run_config.get("mode", "session"))
    if mode not in ("session", "message"):
        raise Error(
            f'the mode is "{mode}"\n'
            '  use "session", or "message" where no other port is open and in simulations'
        )
    return (_sessions if mode == "session" else _letters)(grid, context, config, settings)


def client_app(rows: Callable[[Context], Any] | None = None) -> ClientApp:
    """A ClientApp for any site. ``rows`` gives the node's table; without it, it is the file that
    the node config calls ``data``, or what stands in the run's config.
    """
    app = ClientApp()

    def brought(context: Context) -> dict[str, Any]:
        table = rows(context) if rows is not None else context.node_config.get("data")
        return dict(
            rows=table,
            state=_state(context),
            allow_simulation_seeds=_allows_simulation(context),
            budget=_budget(context),
            certs=context.node_config.get("certs") or os.environ.get("CONSILIENCE_CERTS"),
        )

    @app.query(INTRODUCE)
    def introduce(message: Message, context: Context) -> Message:
        sites: list[str] = list(_told(message)["sites"])
        site: Any = context.node_config.get("site")
        if site is None:
            place = context.node_config.get("partition-id", -1)
            site = sites[int(place)] if 0 <= int(place) < len(sites) else ""
        return _reply(message, site=str(site))

    @app.train(SESSION)
    def session(message: Message, context: Context) -> Message:
        order = _told(message)
        invitation = network.Invitation.from_json(str(order["invitation"]))
        try:
            finished = network.join(
                invitation, patience=float(order["patience"]), **brought(context)
            )
        except Exception as error:  # Flower would send its words to the server
            return _trouble(message, error)
        return _reply(message, finished=finished)

    @app.train(LETTER)
    def letter(message: Message, context: Context) -> Message:
        order = _told(message)
        try:
            site = network.Site(str(order["site"]), **brought(context))
            answer = site.answer(bytes(order["letter"]))
        except Exception as error:  # Flower would send its words to the server
            return _trouble(message, error)
        if site.trouble:
            log(WARNING, "consilience: this site takes no part: %s", site.trouble)
        return _reply(message, letter=answer, trouble=TROUBLE if site.trouble else "")

    return app


def _trouble(message: Message, error: Exception) -> Message:
    """Say here what went wrong, and to the server that something did."""
    log(WARNING, "consilience: this site takes no part: %s: %s", type(error).__name__, error)
    return _reply(message, trouble=TROUBLE)


def _told(message: Message) -> Any:
    """What a message of ours says: its entries have the types that we gave them."""
    return message.content[RECORD]


def _reply(message: Message, **entries: Any) -> Message:
    return Message(RecordDict({RECORD: ConfigRecord(entries)}), reply_to=message)


def _state(context: Context) -> Path:
    """Where a node keeps what a run needs between messages: Flower's own context does not outlive
    the node.
    """
    place = context.node_config.get("state") or os.environ.get("CONSILIENCE_STATE")
    return (
        Path(str(place))
        if place
        else Path(tempfile.gettempdir()) / f"consilience-flower-{os.getuid()}" / str(context.run_id)
    )


def _budget(context: Context) -> tuple[float, float] | None:
    """What the node may tell of one row in all its runs: only its own operator can say so."""
    stated = context.node_config.get("budget") or os.environ.get("CONSILIENCE_BUDGET")
    if not stated:
        return None
    if not (context.node_config.get("state") or os.environ.get("CONSILIENCE_STATE")):
        raise Error(
            "the node has a budget for all its runs, and no folder that outlives one\n"
            "  name its `state` in --node-config, too"
        )
    try:
        epsilon, delta = map(float, str(stated).split(","))
    except ValueError:
        raise Error(f'the node\'s budget is "{stated}"\n  write it as "6,1e-5"') from None
    return epsilon, delta


def _allows_simulation(context: Context) -> bool:
    """Only the node's own operator can say so: a server that knows a site's noise knows more than
    it should.
    """
    return (
        bool(context.node_config.get("allow-simulation-seeds", False))
        or os.environ.get("CONSILIENCE_ALLOW_SIMULATION_SEEDS") == "1"
    )


class _Stuck:
    """Since when nothing goes forward for the sake of a site: an elastic run goes on without it."""

    def __init__(self, serving: network.Serving, patience: float) -> None:
        self.serving, self.patience = serving, patience
        self.done, self.moved = -1, time.monotonic()
        self.since: dict[str, float] = {}

    def too_long(self, sites: Iterable[str], now: float) -> list[str]:
        """Which of these sites have held up the run for longer than it has patience. Whoever is not
        named any more does not.
        """
        if (done := self.serving.done) != self.done:
            self.done, self.moved = done, now
        self.since = {site: self.since.get(site, now) for site in sites}
        return [
            site
            for site, since in self.since.items()
            if now - max(since, self.moved) > self.patience
        ]


class _Nodes:
    """Who is which site."""

    def __init__(self, grid: Grid, sites: list[str], patience: float) -> None:
        self.grid, self.sites, self.patience = grid, sites, patience
        self.node_of: dict[str, int] = {}
        self.known: set[int] = set()

    def gather(self) -> None:
        """Wait until every site has a node."""
        since = time.monotonic()
        while missing := [site for site in self.sites if site not in self.node_of]:
            if time.monotonic() - since > self.patience:
                raise Error(
                    f"no node came for {', '.join(missing)} within {self.patience:.0f} s\n"
                    "  start a SuperNode for each site, with --node-config 'site=\"NAME\"'; "
                    f"in a simulation, flwr run --federation-config "
                    f"'num-supernodes={len(self.sites)}'"
                )
            if not self.meet(set(self.grid.get_node_ids()) - self.known):
                time.sleep(0.2)

    def find(self, lost: list[str]) -> set[str]:
        """Look for the nodes of sites that are lost: among new ones, else the old ones themselves,
        who may be back. Which were found.
        """
        online = set(self.grid.get_node_ids())
        old = {self.node_of[site] for site in lost if site in self.node_of}
        return self.meet(online - self.known or online & old, lost)

    def meet(self, nodes: set[int], lost: list[str] | None = None) -> set[str]:
        """Ask nodes which sites they are. Only a node that is lost may be replaced."""
        if not nodes:
            return set()
        content = RecordDict({RECORD: ConfigRecord({"sites": self.sites})})
        messages = [
            Message(content, dst_node_id=node, message_type=f"query.{INTRODUCE}") for node in nodes
        ]
        met = set()
        for reply in self.grid.send_and_receive(messages, timeout=INTRODUCTION):
            if reply.has_error():
                continue
            node = reply.metadata.src_node_id
            self.known.add(node)
            site = str(_told(reply)["site"])
            if site not in self.sites:
                log(
                    WARNING,
                    'consilience: node %s is the site "%s", which this run has not: it is left '
                    "alone",
                    node,
                    site,
                )
                continue
            if self.node_of.get(site, node) != node and site not in (lost or []):
                raise Error(
                    f"nodes {self.node_of[site]} and {node} both say that they are the site "
                    f'"{site}"\n  give every SuperNode its own site in --node-config'
                )
            self.node_of[site] = node
            met.add(site)
        return met

    def send(self, site: str, action: str, /, **entries: Any) -> str | None:
        """Send a site a message; its id."""
        content = RecordDict({RECORD: ConfigRecord(entries)})
        ids = list(
            self.grid.push_messages(
                [Message(content, dst_node_id=self.node_of[site], message_type=f"train.{action}")]
            )
        )
        return str(ids[0]) if ids and ids[0] else None


def _options(context: Context) -> tuple[dict[str, Any], float, float]:
    rc = context.run_config
    state = rc.get("state")
    quarantine: dict[str, Any] = {"quarantine": bool(rc.get("quarantine", True))}
    return (
        quarantine | ({"state": str(state)} if state else {}),
        float(rc.get("patience", PATIENCE)),
        float(rc.get("silence", SILENCE)),
    )


def _sessions(grid: Grid, context: Context, config: Config, settings: dict[str, Any]) -> Result:
    options, patience, silence = _options(context)
    rc = context.run_config
    where = dict(
        host=str(rc.get("host", "127.0.0.1")),
        listen=str(rc.get("listen", "0.0.0.0")),
        port=int(rc.get("port", 0)),
    )
    serves = network.serve(config, **where, **options, **settings)  # type: ignore[arg-type]
    with serves as serving:
        nodes = _Nodes(grid, serving.sites, patience)
        nodes.gather()
        sent: dict[str, str] = {}
        heard = dict.fromkeys(serving.sites, time.monotonic())
        away, blocked = _Stuck(serving, patience), _Stuck(serving, patience)
        said = time.monotonic()

        def invite(site: str) -> None:
            if (
                id := nodes.send(
                    site, SESSION, invitation=serving.invitations[site].to_json(), patience=patience
                )
            ) is not None:
                sent[id] = site
                heard[site] = time.monotonic()

        for site in serving.sites:
            invite(site)
        while (result := serving.poll(0.2)) is None:
            now = time.monotonic()
            if now - said > LINES:
                log(INFO, "consilience: %s", serving.progress)
                said = now
            for site, connected in serving.connected.items():
                if connected:
                    heard[site] = now
            for reply in grid.pull_messages(list(sent)):
                site = sent.pop(reply.metadata.reply_to_message_id, "")
                if not site:
                    continue
                if not reply.has_error() and (trouble := _told(reply).get("trouble")):
                    log(WARNING, 'consilience: site "%s" takes no part: %s', site, trouble)
                    if not options["quarantine"]:
                        serving.stop()
                        raise Refused(f'site "{site}" takes no part: {trouble}')
                    heard[site] = now  # it is asked again, when it may be mended
                if reply.has_error():
                    log(
                        WARNING,
                        'consilience: the node of the site "%s" is gone (%s): it is looked for',
                        site,
                        reply.error.reason,
                    )
                    heard[site] = now - silence
            why = serving.blocked_by
            for site in blocked.too_long(why, now):
                serving.stop()
                raise Refused(_given_up(site, why[site], patience))
            lost = [site for site in serving.sites if now - heard[site] >= silence]
            for site in away.too_long([site for site in lost if site not in why], now):
                serving.stop()
                raise Error(
                    f'site "{site}" has been away for {patience:.0f} s: the run is given up\n'
                    "  with `state` in the run config it can be continued; in a simulation every "
                    "site needs a CPU of its own as long as the run lasts: --federation-config "
                    f"'num-supernodes={len(serving.sites)} client-resources-num-cpus=1 "
                    f"init-args-num-cpus={len(serving.sites)}'"
                )
            if lost:
                for site in nodes.find(lost) & set(lost):
                    log(INFO, 'consilience: the site "%s" is back', site)
                    invite(site)
        _see_off(grid, sent)
        return result


def _given_up(site: str, why: str, patience: float) -> str:
    return (
        f'site "{site}" could not go on for {patience:.0f} s: the run is given up\n'
        f"  {why}; with `state` in the run config it can be continued when the site is mended"
    )


def _letters(grid: Grid, context: Context, config: Config, settings: dict[str, Any]) -> Result:
    options, patience, silence = _options(context)
    serving = network.serve(config, **options, **settings)
    with serving:
        nodes = _Nodes(grid, serving.sites, patience)
        nodes.gather()
        sent: dict[str, int] = {}
        lost: dict[int, float] = {}
        held: dict[int, float] = {}
        troubled: dict[str, str] = {}
        away, blocked = _Stuck(serving, patience), _Stuck(serving, patience)
        said = time.monotonic()
        while True:
            result = serving.poll()
            now = time.monotonic()
            if now - said > LINES:
                log(INFO, "consilience: %s", serving.progress)
                said = now
            moved = False
            for place in set(range(len(serving.sites))) - set(sent.values()):
                if place in lost or now < held.get(place, now):
                    continue
                if (letter := serving.collect(place)) is not None:
                    site = serving.sites[place]
                    if (id := nodes.send(site, LETTER, site=site, letter=letter)) is None:
                        lost[place] = now
                        serving.lost(place, "Flower did not take the message")
                    else:
                        sent[id] = place
                    moved = True
            if result is not None and not sent:
                return result
            for reply in grid.pull_messages(list(sent)) if sent else ():
                place = sent.pop(reply.metadata.reply_to_message_id, -1)
                if place < 0:
                    continue
                moved = True
                if reply.has_error():
                    log(
                        WARNING,
                        'consilience: the node of the site "%s" is gone (%s): it is looked for',
                        serving.sites[place],
                        reply.error.reason,
                    )
                    lost[place] = now
                    serving.lost(place, str(reply.error.reason))
                    continue
                told = _told(reply)
                if trouble := told.get("trouble"):
                    log(
                        WARNING,
                        'consilience: site "%s" takes no part: %s',
                        serving.sites[place],
                        trouble,
                    )
                    held[place] = now + silence  # it is asked again, when it may be mended
                if result is None and "letter" in told:
                    try:
                        serving.deliver(place, bytes(told["letter"]))
                    except Refused as refused:
                        log(WARNING, "consilience: %s", refused)
                elif result is None and options["quarantine"]:
                    troubled[serving.sites[place]] = trouble
                    serving.lost(place, trouble)
                elif result is None:
                    raise Refused(f'site "{serving.sites[place]}" takes no part: {trouble}')
                if not trouble:
                    troubled.pop(serving.sites[place], None)
            why = troubled | serving.blocked_by
            for site in blocked.too_long(why, now) if result is None else ():
                raise Refused(_given_up(site, why[site], patience))
            for site in away.too_long([serving.sites[place] for place in lost], now):
                raise Error(
                    f'site "{site}" has been away for {patience:.0f} s: the run is given up'
                )
            if lost:
                for site in nodes.find([serving.sites[place] for place in lost]):
                    if lost.pop(serving.sites.index(site), None) is not None:
                        log(INFO, 'consilience: the site "%s" is back', site)
            if not moved:
                time.sleep(0.002)


def _see_off(grid: Grid, sent: dict[str, str]) -> None:
    """Take the last replies, so that Flower knows that the nodes are done."""
    until = time.monotonic() + INTRODUCTION
    while sent and time.monotonic() < until:
        for reply in grid.pull_messages(list(sent)):
            sent.pop(reply.metadata.reply_to_message_id, None)
        time.sleep(0.2)
