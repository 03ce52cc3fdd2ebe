"""Run a sampler by messages that you carry: the server and the sites as plain objects that eat and give bytes.

Any carrier will do that brings some sites one message each and one answer back. Answers may come in any order; the same message again gets the same answer. With ``seeds = "simulation"`` in the
config the draws are those of :func:`consilience.sample`, bit for bit; otherwise each site's noise comes from its own operating system, and nobody else can compute it.

>>> from consilience import protocol
>>> config = {"seeds": "simulation", "target": {"model": "gaussian"}, "sampler": {"name": "lmc", "step": 0.1}, "run": {"iterations": 50, "chains": 1},
...           "client": [{"name": "a", "mean": [0.0], "precision": [[1.0]]}, {"name": "b", "mean": [3.0], "precision": [[2.0]]}]}
>>> sites = {name: protocol.Client(config, name) for name in ["a", "b"]}
>>> server = protocol.Server(config)
>>> while not server.finished:
...     for name, message in server.orders().items():
...         server.receive(name, sites[name].answer(message))
>>> server.result.draws.shape
(1, 45, 1)
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from . import _consilience
from ._progress import shower
from ._result import Result
from ._sample import Columns, Config, Stated, now, state
from ._tables import columns_of
from .errors import Error, Refused

#: Brings each site its message, and gives each site's answer.
Carry = Callable[[dict[str, bytes]], Mapping[str, bytes]]


def serve(config: Config, carry: Carry, *, progress: bool = True, **settings: Any) -> Result:
    """Run a config whose sites are wherever ``carry`` finds them. The server has no rows: a client of the config may be no more than a name.

    What ``carry`` raises comes out of here, and ends the run.
    """
    stated, _ = state(None, None, config, settings)
    bar = shower(progress, "sampling")
    try:
        return Result(_consilience.serve(stated, now(), carry, bar))
    finally:
        if bar is not None:
            bar.close()


class Client:
    """A site: its own rows, and nobody else's.

    Args:
        config: the run, as the server has it. Other clients may be no more than names.
        site: which of the clients this is.
        table: its rows, where the config does not name a file; any table that :func:`consilience.sample` takes.
        state: what :meth:`state` gave before: the site goes on from there, in another process if you like.
    """

    def __init__(self, config: Config, site: str, table: Any = None, *, state: bytes | None = None) -> None:
        stated, _ = _stated(config, {})
        columns: Columns = [] if table is None else [(site, columns_of(table, f"client {site!r}"))]
        self._given = (stated, columns, site)
        self._site = self._made(state)

    def answer(self, message: bytes) -> bytes:
        """Do what a message asks. A message that makes no sense is refused, and changes nothing."""
        return self._site.answer(message)

    def state(self) -> bytes:
        """Everything that the next answer needs, but for the config and the rows. Keep it before an answer is sent, and where the rows are kept: it holds the seed of the site's noise."""
        return self._site.state()

    def restore(self, state: bytes) -> None:
        """Go back to where a state was taken."""
        self._site = self._made(state)

    def _made(self, state: bytes | None) -> _consilience.Site:
        return _consilience.Site(*self._given, os.urandom(32), state)


class Server:
    """The server's side, driven from outside: give the orders to the sites, and the sites' answers to it, until it has finished."""

    def __init__(self, config: Config, **settings: Any) -> None:
        stated, _ = _stated(config, settings)
        self._asked: queue.Queue[dict[str, bytes] | None] = queue.Queue()
        self._answered: queue.Queue[dict[str, bytes]] = queue.Queue()
        self._open: dict[str, bytes] = {}
        self._answers: dict[str, bytes] = {}
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, args=(stated,), daemon=True)
        self._thread.start()
        self._next()

    def orders(self) -> dict[str, bytes]:
        """The messages of sites that have not answered yet; the same until they have."""
        return {site: message for site, message in self._open.items() if site not in self._answers}

    def receive(self, site: str, answer: bytes) -> None:
        """Take in a site's answer. When the last one is there the run goes on; a site that answers twice is heard once."""
        if site not in self._open:
            raise Refused(f"`{site}` was not asked\n  the sites that were: {', '.join(self._open) or 'none'}")
        self._answers.setdefault(site, answer)
        if len(self._answers) == len(self._open):
            self._answered.put(self._answers)
            self._next()

    @property
    def finished(self) -> bool:
        """Whether all draws are there."""
        return self._result is not None

    @property
    def result(self) -> Result:
        """The run, once it has finished."""
        if self._result is None:
            raise Error("the run has not finished\n  carry orders and answers until `finished`")
        return self._result

    @property
    def draws(self) -> Any:
        """The draws, once it has finished: chain, draw, parameter."""
        return self.result.draws

    def _next(self) -> None:
        asked = self._asked.get()
        self._open, self._answers = asked or {}, {}
        if self._error is not None:
            raise self._error

    def _work(self, stated: Any) -> None:
        try:
            self._result = Result(_consilience.serve(stated, now(), self._carry, None))
        except BaseException as error:  # raised again where somebody listens
            self._error = error
        self._asked.put(None)

    def _carry(self, messages: dict[str, bytes]) -> dict[str, bytes]:
        self._asked.put(messages)
        return self._answered.get()


def _stated(config: Config, settings: Mapping[str, Any]) -> tuple[Stated, Columns]:
    return state(None, None, config, settings)
