"""Serve a run to sites elsewhere, and join one: over our own encrypted streams, or by a post that
somebody else carries.

Over our own streams, the server issues an :class:`Invitation` to every site: where it is, the
authority that vouches for it in this run alone, and a secret ticket. Hand each site its own.

>>> import threading
>>> from consilience import network
>>> config = {
...     "seeds": "simulation",
...     "target": {"model": "gaussian"},
...     "sampler": {"name": "lmc", "step": 0.1},
...     "run": {"iterations": 50, "chains": 1},
...     "client": [
...         {"name": "a", "mean": [0.0], "precision": [[1.0]]},
...         {"name": "b", "mean": [3.0], "precision": [[2.0]]},
...     ],
... }
>>> with network.serve(config, host="127.0.0.1") as serving:
...     allow = {"allow_simulation_seeds": True}
...     sites = [
...         threading.Thread(target=network.join, args=(invitation,), kwargs=allow)
...         for invitation in serving.invitations.values()
...     ]
...     for site in sites: site.start()
...     result = serving.result()
>>> result.draws.shape
(1, 45, 1)

By post, whoever carries messages brings a site what waits for it, and brings back what it answers:

>>> serving = network.serve(config)
>>> sites = [network.Site(name, allow_simulation_seeds=True) for name in serving.sites]
>>> while (result := serving.poll()) is None:
...     for k, site in enumerate(sites):
...         if (letter := serving.collect(k)) is not None:
...             serving.deliver(k, site.answer(letter))
>>> result.draws.shape
(1, 45, 1)
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import numpy.typing as npt

from . import _consilience
from ._diagnostics import warn
from ._model import AnyModel, Batch, Brought, bring
from ._result import Result
from ._sample import Config, now, state as stated_of
from ._tables import Cells, columns_of
from .errors import ConfigError, Error

__all__ = ["BUILTIN", "Invitation", "Serving", "Site", "join", "serve"]


class _Builtin:
    """The rows that come with the package."""

    def __repr__(self) -> str:
        return "consilience.network.BUILTIN"


#: In place of a site's rows, where the config names built-in data: its part of it, to try things
#: out.
BUILTIN = _Builtin()


@dataclasses.dataclass(frozen=True)
class Invitation:
    """What one site is handed. Keep it secret: it admits its bearer as that site, for this run."""

    site: str
    server: str
    authority: str = dataclasses.field(repr=False)
    ticket: str = dataclasses.field(repr=False)

    def to_json(self) -> str:
        """As text, for whoever hands it over."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Invitation":
        """Read it again."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise Error(f"this is no invitation: {error}") from error


class Serving:
    """A run that is being served, on threads of its own. As a context it is stopped at the end."""

    def __init__(self, serving: _consilience.Serving) -> None:
        self._serving = serving
        #: The sites, in the order of the config.
        self.sites: list[str] = serving.sites
        #: What each site is handed; empty by post.
        self.invitations: dict[str, Invitation] = {
            i.site: i for i in map(Invitation.from_json, serving.invitations)
        }
        self._result: Result | None = None

    def poll(self, seconds: float = 0.0) -> Result | None:
        """The result, if the run ends within so many seconds. What went wrong is raised."""
        if self._result is None and (run := self._serving.wait(seconds)) is not None:
            self._result = Result(run)
            warn(self._result.warnings)
        return self._result

    def result(self) -> Result:
        """Wait for the end. Ctrl-C stops the run, and gives what was drawn."""
        while True:
            try:
                if (result := self.poll(1.0)) is not None:
                    return result
            except KeyboardInterrupt:
                self.stop()

    def stop(self) -> None:
        """Ask the run to stop; what was drawn is kept."""
        self._serving.stop()

    @property
    def progress(self) -> str:
        """How the run stands, in a line."""
        return self._serving.view()[3]

    @property
    def connected(self) -> dict[str, bool]:
        """Which sites are connected."""
        return dict(zip(self.sites, self._serving.connected()))

    @property
    def blocked(self) -> list[str]:
        """Which sites cannot go on, since when and why: a sentence for each. The run waits until
        they are mended and join again.
        """
        return self._serving.blocked()

    @property
    def blocked_by(self) -> dict[str, str]:
        """The same by the sites' names."""
        said = self.blocked
        found = {
            site: [why for why in said if why.startswith(f"blocked by {site} since ")]
            for site in self.sites
        }
        return {site: why[0] for site, why in found.items() if why}

    @property
    def done(self) -> int:
        """How many iterations are done, all chains together."""
        return self._serving.view()[1]

    def collect(self, site: int) -> bytes | None:
        """By post: what waits for a site. An empty letter is a knock."""
        return self._serving.collect(site)

    def deliver(self, site: int, letter: bytes) -> None:
        """By post: deliver what a site answered. A letter that makes no sense raises ``Refused``;
        the run goes on, and asks again.
        """
        self._serving.deliver(site, letter)

    def lost(self, site: int, why: str) -> None:
        """By post: say that a letter was lost or a site does not answer. It is asked again."""
        self._serving.lost(site, why)

    def __enter__(self) -> "Serving":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def serve(
    config: Config,
    *,
    host: str | None = None,
    listen: str = "0.0.0.0",
    port: int = 0,
    state: str | os.PathLike[str] | None = None,
    deadline: float | None = None,
    quarantine: bool = True,
    **settings: Any,
) -> Serving:
    """Serve a run. The server has no rows: a client of the config may be no more than a name.

    Args:
        config: as :func:`consilience.sample` takes it; ``**settings`` change it.
        host: under which name or address the sites find the server; without it the run is served by
            post.
        listen, port: where it listens; port 0 takes any that is free.
        state: a folder in which the run is kept, so that a server that dies goes on where it was.
        deadline: how many seconds nothing may go forward before the run is given up.
        quarantine: whether a site that cannot go on (its disk is full, it disagrees, its answer is
            no number) is waited for until it is mended and joins again; who that is and why is in
            :attr:`Serving.blocked`. Else it ends the run.
    """
    stated, _ = stated_of(None, None, config, settings)
    return Serving(
        _consilience.serve_run(stated, now(), host, listen, port, state, deadline, quarantine)
    )


class _Bringing(NamedTuple):
    site: str
    model: Brought | None
    file: str | None
    columns: list[tuple[str, Cells]] | None
    builtin: bool
    state: str | None
    allows_simulation: bool
    budget: tuple[float, float] | None
    certs: str | None


def _bringing(
    site: str,
    rows: Any,
    state: str | os.PathLike[str] | None,
    allow_simulation_seeds: bool,
    model: Any = None,
    parameters: int | Sequence[str] | None = None,
    budget: tuple[float, float] | None = None,
    certs: str | os.PathLike[str] | None = None,
) -> _Bringing:
    kept = None if state is None else os.fspath(state)
    noise = (allow_simulation_seeds, budget, None if certs is None else os.fspath(certs))
    if model is not None:
        bare = not isinstance(model, AnyModel)
        if not bare and rows is not None:
            raise ConfigError("the model knows its rows\n  leave out `rows`")
        clients = {site: rows} if bare and rows is not None else None
        brought = bring(model, clients, parameters, None)
        return _Bringing(site, brought, None, None, False, kept, *noise)
    if parameters is not None:
        raise ConfigError("`parameters` are those of a model\n  give `model`, or leave them out")
    file = os.fspath(rows) if isinstance(rows, (str, os.PathLike)) else None
    stated = rows is None or rows is BUILTIN or file is not None
    columns = None if stated else columns_of(rows, f"site {site!r}", dates_are_words=True)
    return _Bringing(site, None, file, columns, rows is BUILTIN, kept, *noise)


class Site:
    """A site that is reached by post.

    Args:
        site: its name in the server's config.
        rows: its rows: a file, any table that :func:`consilience.sample` takes, or :data:`BUILTIN`;
            ``None``: they stand in the config.
        state: a folder in which it keeps what the next letter needs. With one, a site may be made
            anew for every letter; without, it must live as long as the run.
        allow_simulation_seeds: whether the server may know the site's noise. Never in earnest.
        budget: what the site may tell of one row in all its runs, epsilon and delta: without it the
            site takes no part in runs with ``[privacy]``, and with it in no others.
        certs: the folder of the site's certificate, of an authority that is not the server's: in
            runs with a secure sum the other sites know by it that a key is this site's.
        model: a model of one's own where the config says ``model = "external"``, as :func:`join`
            takes it.
    """

    def __init__(
        self,
        site: str,
        rows: Any = None,
        *,
        model: AnyModel | Callable[[Batch], npt.ArrayLike | None] | None = None,
        parameters: int | Sequence[str] | None = None,
        state: str | os.PathLike[str] | None = None,
        allow_simulation_seeds: bool = False,
        budget: tuple[float, float] | None = None,
        certs: str | os.PathLike[str] | None = None,
    ) -> None:
        self._site = _consilience.Correspondent(
            _bringing(site, rows, state, allow_simulation_seeds, model, parameters, budget, certs)
        )
        #: Whether the run is over, and if so whether it came to its end.
        self.over: bool | None = None
        #: Why the site takes no part, if so. The server is told of which kind that is, and nothing
        #: that is made of rows.
        self.trouble: str | None = None

    def answer(self, letter: bytes) -> bytes:
        """Do what a letter asks. Nothing leaves before it is kept."""
        answer, self.over, trouble = self._site.answer(letter)
        self.trouble = trouble or self.trouble
        return answer


class _Meeting(NamedTuple):
    invitation: str | None
    server: str
    certs: str | None
    server_name: str | None


def join(
    server: Invitation | str,
    rows: Any = None,
    *,
    site: str | None = None,
    certs: str | os.PathLike[str] | None = None,
    server_name: str | None = None,
    model: AnyModel | Callable[[Batch], npt.ArrayLike | None] | None = None,
    parameters: int | Sequence[str] | None = None,
    state: str | os.PathLike[str] | None = None,
    allow_simulation_seeds: bool = False,
    budget: tuple[float, float] | None = None,
    patience: float | None = None,
) -> bool:
    """Take part in a run, to its end. It comes back by itself when the connection is lost; with
    ``state`` also after it was killed and is started again.

    The server is known by the invitation that it issued to this site; or, where the command
    ``consilience serve`` is the server, by its address ``"host:port"``, with the name of the
    ``site`` and the folder of its ``certs`` (none on the server's own machine; ``server_name`` is
    the name in the server's certificate, where it is not the host).

    Where the config says ``model = "external"`` every site brings a ``model`` of its own: anything
    that :func:`consilience.sample` takes, such as a :class:`consilience.Model` with this site's
    rows; or the function of one, with ``rows`` (a list, or how many there are) and ``parameters``.
    Sites whose models differ in their name or parameters are refused, as is a gradient that is not
    finite; what a model raises comes out as itself, and the server is told that it raised.

    Runs with ``[privacy]`` need ``state`` and ``budget``: what the site may tell of one row in all
    its runs, epsilon and delta. A site with a budget takes part in no other runs. In runs with a
    secure sum ``certs`` is needed, also with an invitation: the other sites know by the certificate
    in that folder, of an authority that is not the server's, that a key is this site's.

    Returns whether the run came to its end. ``patience`` is how many seconds to look for a server
    that is away; without it, for ever.
    """
    if isinstance(server, Invitation):
        if site not in (None, server.site) or server_name is not None:
            raise ConfigError(
                "the invitation says who is invited, and where\n"
                "  leave out `site` and `server_name`"
            )
        who, meeting = server.site, _Meeting(server.to_json(), server.server, None, None)
    elif site is None:
        raise ConfigError(
            "the server must know who joins\n"
            '  name the site: join("trials.example.org:7461", site="east", certs="certs/east")'
        )
    else:
        papers = None if certs is None else os.fspath(certs)
        who, meeting = site, _Meeting(None, server, papers, server_name)
    brings = _bringing(who, rows, state, allow_simulation_seeds, model, parameters, budget, certs)
    return _consilience.join_run(brings, meeting, patience)
