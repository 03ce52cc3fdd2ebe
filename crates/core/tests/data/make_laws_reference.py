"""Compute the samplers' laws from the papers' pseudo-code alone, for tests/laws_reference.rs.

    python3.11 -m venv venv && venv/bin/pip install numpy==2.4.6
    venv/bin/python crates/core/tests/data/make_laws_reference.py

writes, beside itself,
    laws_rows.csv   client,three features,response: the rows of the targets below
    laws.csv        case,mean separated by spaces,covariance row by row separated by spaces
Numbers are written so that reading them back gives the same bits.

Nothing is shared with the program, and nothing is sampled. An algorithm is run once for every
outcome of its coins, minibatches, masks and active sets, on vectors that are affine forms of the
state and of the fresh normals: that is a matrix for each outcome. The average of the matrices'
Kronecker squares moves the second moment, and a dense solve gives the moment that does not move.
There is no formula for the variance of a minibatch, a compressor or a scheme of averaging: there
are all of their outcomes.

Papers: QLSD (Vono et al. 2022), ELF (Karagulyan and Richtarik 2025), FALD (Plassier et al. 2023),
FA-LD (Deng et al. 2021), DG-LMC (Plassier et al. 2021), FSGLD (El Mekkaoui et al. 2021), MARINA
(Gorbunov et al. 2021). Letters are those of the paper of each function; NOTATION.md settles what
they leave open.
"""

from itertools import combinations, product
from math import comb, prod, sqrt
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
D, B = 3, 3


# The targets: lopsided, three clients with 3, 4 and 6 rows.

ROWS = [
    [(0.9, -0.4, 1.1, 0.7), (-0.3, 1.6, 0.2, -1.9), (1.2, 0.5, -0.8, 2.4)],
    [(0.1, 0.8, -1.3, 1.0), (1.5, -0.2, 0.4, -0.6), (-0.7, 0.3, 0.9, 3.1), (0.6, 1.1, 0.5, 0.2)],
    [
        (0.4, -1.2, 0.3, -2.2),
        (1.1, 0.9, 1.4, 1.3),
        (-0.5, 0.2, -0.6, 0.8),
        (0.3, 1.7, 0.1, 4.0),
        (0.8, -0.1, 0.7, -0.3),
        (-1.0, 0.6, 1.2, 1.7),
    ],
]
FORMS = [
    ([1.0, -2.0, 0.5], [[1.0, 0.4, 0.1], [0.4, 0.6, -0.2], [0.1, -0.2, 0.9]]),
    ([-1.5, 0.5, 2.0], [[0.5, -0.3, 0.0], [-0.3, 1.4, 0.3], [0.0, 0.3, 0.4]]),
    ([3.0, 2.0, -1.0], [[1.2, 0.2, 0.5], [0.2, 0.3, 0.1], [0.5, 0.1, 0.8]]),
]
PRIOR = np.diag([0.5, 1.25, 0.8])  # precisions; the prior is centred at 0
FLAT = np.zeros((D, D))
WEIGHTS = [0.5, 0.2, 0.3]
SPLIT = [0.1, 0.2, 0.7]


class Target:
    """Rows with gradients `H x - r`, a prior, and who applies it: the server, or clients."""

    def __init__(self, clients, prior=PRIOR, shares=None, temperature=1.0):
        self.clients, self.prior, self.temperature = clients, prior, temperature
        self.shares = [0.0] * B if shares is None else shares
        self.server_prior = prior if shares is None else FLAT

    def rows(self, i):
        return len(self.clients[i])

    def gradient(self, i, subset, at):
        """A client's estimate from these rows, at an affine form, with its share of the prior."""
        total = self.rows(i)
        subset = range(total) if subset is None else subset
        scale = total / len(subset)
        likelihood = sum(
            scale * (self.clients[i][j][0] @ at - constant(self.clients[i][j][1], at))
            for j in subset
        )
        return likelihood + self.shares[i] * self.prior @ at

    def precision(self):
        return sum(h for client in self.clients for h, _ in client) + self.prior

    def mean(self):
        shift = sum(r for client in self.clients for _, r in client)
        return np.linalg.solve(self.precision(), shift)


def linear():
    """Linear regression with noise of variance 1.5."""
    return [
        [(np.outer(row[:D], row[:D]) / 1.5, np.array(row[:D]) * row[D] / 1.5) for row in client]
        for client in ROWS
    ]


def isotropic():
    """Half the squared distances to the rows' features."""
    return [[(np.eye(D), np.array(row[:D])) for row in client] for client in ROWS]


def gaussian():
    """One quadratic form a client."""
    return [[(np.array(h), np.array(h) @ np.array(mean))] for mean, h in FORMS]


# Affine forms, and how they move second moments.


def constant(vector, like):
    """A constant vector as an affine form: column 0 belongs to the number 1."""
    form = np.zeros_like(like)
    form[:, 0] = vector
    return form


class System:
    """A state of named vectors; `op` gives the map of the second moment of (1, state)."""

    def __init__(self, *names):
        self.names = names
        self.size = 1 + D * len(names)

    def op(self, outcomes, normals=0):
        """With these probabilities, one of these functions of the state and of fresh normals."""
        return sum(p * self.square(function, normals) for p, function in outcomes)

    def square(self, function, normals):
        columns = self.size + D * normals
        state = {}
        for k, name in enumerate(self.names):
            state[name] = np.zeros((D, columns))
            state[name][:, 1 + D * k : 1 + D * (k + 1)] = np.eye(D)
        fresh = []
        for k in range(normals):
            start = self.size + D * k
            fresh.append(np.zeros((D, columns)))
            fresh[k][:, start : start + D] = np.eye(D)
        function(state, *fresh)
        one = np.eye(1, columns)
        matrix = np.vstack([one] + [state[name] for name in self.names])
        old, noise = matrix[:, : self.size], matrix[:, self.size :]
        square = np.kron(old, old)
        square[:, 0] += (noise @ noise.T).ravel()
        return square

    def stationary(self, square):
        rest = np.linalg.solve(np.eye(self.size**2 - 1) - square[1:, 1:], square[1:, 0])
        return np.concatenate([[1.0], rest])

    def law(self, moment, name):
        moment = moment.reshape(self.size, self.size)
        at = 1 + D * self.names.index(name)
        mean = moment[0, at : at + D]
        return mean, moment[at : at + D, at : at + D] - np.outer(mean, mean)


def then(*ops):
    """One after the other."""
    whole = ops[0]
    for op in ops[1:]:
        whole = op @ whole
    return whole


def mix(cases):
    return sum(p * op for p, op in cases)


# What is random.


def minibatches(total, size):
    """Every subset of so many rows, alike; all rows where no size is given."""
    if size is None or size >= total:
        return [(1.0, None)]
    return [(1 / comb(total, size), subset) for subset in combinations(range(total), size)]


def masks(keep, factor=None):
    """rand_k: so many coordinates, times d/k or another factor; all of them where it is None."""
    if keep is None:
        return [(1.0, np.ones((D, 1)))]
    factor = D / keep if factor is None else factor
    choices = list(combinations(range(D), keep))
    mask = lambda kept: np.array([[factor if k in kept else 0.0] for k in range(D)])
    return [(1 / len(choices), mask(kept)) for kept in choices]


def everybody():
    return [(1.0, {i: 1.0 for i in range(B)})]


def coins(p, weigh="1/p"):
    """Each client by its own coin, with weights 1/p_i, or b/|A| given that A is not empty."""
    cases = []
    for faces in product([0, 1], repeat=B):
        chance = prod(p[i] if faces[i] else 1 - p[i] for i in range(B))
        active = [i for i in range(B) if faces[i]]
        if weigh == "1/p":
            cases.append((chance, {i: 1 / p[i] for i in active}))
        elif active:
            chance /= 1 - prod(1 - q for q in p)
            cases.append((chance, {i: B / len(active) for i in active}))
    return cases


def some(size):
    """A uniform subset of this size, with weights b/|A|."""
    sets = list(combinations(range(B), size))
    return [(1 / len(sets), {i: B / size for i in active}) for active in sets]


def sizes_of(target, batch):
    """Rows of each minibatch: a number, a fraction (two integers) rounded down, or all."""
    if batch is None:
        return [None] * B
    if isinstance(batch, tuple):
        return [max(1, batch[0] * target.rows(i) // batch[1]) for i in range(B)]
    return [min(batch, target.rows(i)) for i in range(B)]


# Family A.


def qlsd(
    target,
    gamma,
    batch=None,
    every=None,
    fixed=None,
    alpha=None,
    up=None,
    down=None,
    active=None,
    noise="server",
):
    """QLSD Alg. 1, 2, S1, S2 and S3: every is l, fixed is theta*, alpha None is no memory, up a
    list of masks for each client. The way down is ELF Alg. 2's. The prior at the server is part of
    its own step."""
    up = up or [masks(None)] * B
    active = active or everybody()
    memory = [f"eta{i}" for i in range(B)] if alpha else []
    s = System("theta", "w", "zeta", "g", *memory)
    sizes = sizes_of(target, batch)

    def send(mask):
        def function(v):
            v["w"] = v["w"] + mask * (v["theta"] - v["w"]) if down else v["theta"]

        return function

    def move(v):
        v["zeta"] = v["w"] if fixed is None else constant(fixed, v["zeta"])

    def begin(v):
        # The server's eta starts as the sum of the clients' and moves as they do: it is their sum.
        v["g"] = sum((v[name] for name in memory), constant(np.zeros(D), v["g"]))

    def answer(i, weight, subset, mask):
        def function(v, *normals):
            h = target.gradient(i, subset, v["w"])
            if every or fixed is not None:
                h = h - target.gradient(i, subset, v["zeta"])
            if every:
                h = h + target.gradient(i, None, v["zeta"])
            if alpha:
                h = h - v[f"eta{i}"]
            g = mask * h
            if normals:  # each of b errors, times gamma, is a b-th of the Langevin noise
                g = g + sqrt(2 * gamma * target.temperature / B) / gamma * normals[0]
            if alpha:
                v[f"eta{i}"] = v[f"eta{i}"] + alpha * g
            v["g"] = v["g"] + weight * g

        return function

    def step(v, z):
        drift = v["g"] + target.server_prior @ v["theta"]
        if fixed is not None:
            at = constant(fixed, v["theta"])
            drift = drift + sum(target.gradient(i, None, at) for i in range(B))
        z = sqrt(2 * gamma * target.temperature) * z if noise == "server" else 0
        v["theta"] = v["theta"] - gamma * drift + z

    known = {}

    def client(i, weight):
        if (i, weight) not in known:
            outcomes = [
                (p * q, answer(i, weight, subset, mask))
                for p, subset in minibatches(target.rows(i), sizes[i])
                for q, mask in up[i]
            ]
            known[i, weight] = s.op(outcomes, normals=0 if noise == "server" else 1)
        return known[i, weight]

    sent = s.op([(p, send(mask)) for p, mask in (down or masks(None))])
    started = s.op([(1.0, begin)])
    answered = mix(
        [
            (p, then(started, *[client(i, weight) for i, weight in weights.items()]))
            for p, weights in active
        ]
    )
    stepped = s.op([(1.0, step)], normals=1)
    first = then(sent, s.op([(1.0, move)]), answered, stepped)
    later = then(sent, answered, stepped)
    period = every or 1
    moment = s.stationary(np.linalg.matrix_power(later, period - 1) @ first)
    draws = np.zeros_like(moment)
    for k in range(period):
        moment = (first if k == 0 else later) @ moment
        draws = draws + moment / period
    return s.law(draws, "theta")


def elf(target, gamma, up=None, down=None, batch=None):
    """ELF Alg. 1, 2 and 3, with F = (1/n) sum F_i, so F_i = n U_i. The prior is the server's."""
    n = B
    s = System("x", "w", *[f"g{i}" for i in range(n)])
    sizes = sizes_of(target, batch)

    def step(v, z):
        g = sum(v[f"g{i}"] for i in range(n)) / n  # as g_0, and both move by the same h
        v["x"] = (
            v["x"]
            - gamma * (g + target.server_prior @ v["x"])
            + sqrt(2 * gamma * target.temperature) * z
        )

    def send(mask):
        def function(v):
            v["w"] = v["w"] + mask * (v["x"] - v["w"]) if down else v["x"]

        return function

    def answer(i, subset, mask):
        def function(v):
            h = mask * (n * target.gradient(i, subset, v["w"]) - v[f"g{i}"])
            v[f"g{i}"] = v[f"g{i}"] + h

        return function

    answers = [
        s.op(
            [
                (p * q, answer(i, subset, mask))
                for p, subset in minibatches(target.rows(i), sizes[i])
                for q, mask in (up or masks(None))
            ]
        )
        for i in range(n)
    ]
    sent = s.op([(p, send(mask)) for p, mask in (down or masks(None))])
    round_ = then(s.op([(1.0, step)], normals=1), sent, *answers)
    return s.law(s.stationary(round_), "x")


def marina(target, gamma, restart, up):
    """MARINA with Langevin noise: with this probability g = sum grad_i(x), else g is increased by
    sum C(grad_i(x) - grad_i(last))."""
    s = System("x", "last", "g")

    def start(in_full):
        def function(v):
            v["g"] = constant(np.zeros(D), v["g"]) if in_full else v["g"]

        return function

    def answer(i, in_full, mask):
        def function(v):
            new = target.gradient(i, None, v["x"])
            change = new - target.gradient(i, None, v["last"])
            v["g"] = v["g"] + (new if in_full else mask * change)

        return function

    def step(v, z):
        v["last"] = v["x"]
        v["x"] = (
            v["x"]
            - gamma * (v["g"] + target.server_prior @ v["x"])
            + sqrt(2 * gamma * target.temperature) * z
        )

    def answers(in_full):
        clients = [s.op([(p, answer(i, in_full, mask)) for p, mask in up]) for i in range(B)]
        return then(s.op([(1.0, start(in_full))]), *clients)

    answered = mix([(restart, answers(True)), (1 - restart, answers(False))])
    return s.law(s.stationary(then(answered, s.op([(1.0, step)], normals=1))), "x")


def preconditioned(target, gamma, batch=None):
    """Langevin steps in coordinates u, x = mean + C u with C C' the inverse of the Hessian: in x
    the drift is C C' grad U, and the noise C Z."""
    s = System("x", "g")
    inverse = np.linalg.inv(target.precision())
    root = np.linalg.cholesky(inverse)
    sizes = sizes_of(target, batch)

    def begin(v):
        v["g"] = target.prior @ v["x"]

    def answer(i, subset):
        def function(v):
            v["g"] = v["g"] + target.gradient(i, subset, v["x"])

        return function

    def step(v, z):
        v["x"] = v["x"] - gamma * inverse @ v["g"] + sqrt(2 * gamma * target.temperature) * root @ z

    answers = [
        s.op([(p, answer(i, subset)) for p, subset in minibatches(target.rows(i), sizes[i])])
        for i in range(B)
    ]
    round_ = then(s.op([(1.0, begin)]), *answers, s.op([(1.0, step)], normals=1))
    return s.law(s.stationary(round_), "x")


# Family B.


def averages(scheme, size, weights):
    """What each client counts for: all by their weights, scheme I, scheme II."""
    if scheme is None:
        return [(1.0, weights)]
    if scheme == "I":
        drawn = [
            (prod(weights[c] for c in draws), draws) for draws in product(range(B), repeat=size)
        ]
    else:
        sets = list(combinations(range(B), size))
        drawn = [(1 / len(sets), chosen) for chosen in sets]
    return [(p, [draws.count(c) / size for c in range(B)]) for p, draws in drawn]


def fa_ld(
    target,
    eta,
    weights,
    rho,
    every=None,
    p=None,
    batch=None,
    scheme=None,
    size=None,
    noise="published",
    q=None,
    up=None,
    alpha=None,
):
    """FA-LD Alg. 4: f^c = U_c / p_c. Beyond it: p, synchronisation at random times; q, a reference
    point (FALD Alg. 3 with weights); noise "participants", such that the mean has variance 2 eta T;
    up and alpha, parameters sent as compressed differences to a memory h_c."""
    theta, h = [f"theta{c}" for c in range(B)], [f"h{c}" for c in range(B)] if up else []
    s = System("mean", "xi", *(["y", "next"] if q is not None else []), *theta, *h)
    sizes = sizes_of(target, batch)
    schemes = averages(scheme, size, weights)
    # The private noise of the mean is sum_c w_c xi_c / sqrt(p_c), of variance sum_c w_c^2 / p_c.
    carried = sum(chance * sum(w[c] ** 2 / weights[c] for c in range(B)) for chance, w in schemes)
    private = 1 / carried if noise == "participants" else 1.0

    def share(v, xi):
        v["xi"] = xi

    def refer(moves):
        def function(v):
            v["next"] = sum(weights[c] * v[theta[c]] for c in range(B)) if moves else v["y"]

        return function

    def walk(c, subset):
        def function(v, xi):
            drift = target.gradient(c, subset, v[theta[c]]) / weights[c]
            if q is not None:
                drift = drift - target.gradient(c, subset, v["y"]) / weights[c]
                drift = drift + sum(target.gradient(i, None, v["y"]) for i in range(B))
            own = sqrt((1 - rho**2) / weights[c] * private) * xi
            noise = sqrt(2 * eta * target.temperature) * (rho * v["xi"] + own)
            v[theta[c]] = v[theta[c]] - eta * drift + noise

        return function

    def replace(v):
        v["y"] = v["next"]

    def average(w):
        def function(v):
            v["mean"] = sum(w[c] * v[theta[c]] for c in range(B))

        return function

    def broadcast(v):
        for c in range(B):
            v[theta[c]] = v["mean"]

    def nothing(v):
        v["mean"] = constant(np.zeros(D), v["mean"])

    def send(c, mask):
        def function(v):
            sent = mask * (v[theta[c]] - v[h[c]])
            v["mean"] = v["mean"] + weights[c] * (v[h[c]] + sent)
            v[h[c]] = v[h[c]] + alpha * sent

        return function

    steps = [
        s.op(
            [(chance, walk(c, subset)) for chance, subset in minibatches(target.rows(c), sizes[c])],
            normals=1,
        )
        for c in range(B)
    ]
    iteration = [s.op([(1.0, share)], normals=1), *steps]
    if q is not None:
        coin = s.op([(q, refer(True)), (1 - q, refer(False))])
        iteration = [coin, *iteration, s.op([(1.0, replace)])]
    iteration = then(*iteration)
    if up:
        sends = [s.op([(chance, send(c, mask)) for chance, mask in up]) for c in range(B)]
        averaged = then(s.op([(1.0, nothing)]), *sends)
    else:
        averaged = s.op([(chance, average(w)) for chance, w in schemes])
    synchronise = then(averaged, s.op([(1.0, broadcast)]))
    return synchronised(s, iteration, synchronise, every, p, "mean")


def synchronised(s, iteration, synchronise, every, p, name):
    """The law right after a synchronisation: every so many iterations, or by a coin after each."""
    if every:
        return s.law(s.stationary(synchronise @ np.linalg.matrix_power(iteration, every)), name)
    moment = s.stationary(p * synchronise @ iteration + (1 - p) * iteration)
    return s.law(synchronise @ iteration @ moment, name)


def fald(target, gamma, tau, p_c, q_c=None, batch=None):
    """FALD Alg. 2, and with q_c Alg. 3: steps gamma on U^i = U_i + U^0 / b, plain means, noise as
    in the supplement."""
    x = [f"x{i}" for i in range(B)]
    s = System("mean", "z", *(["y", "next", "c"] if q_c is not None else []), *x)
    sizes = sizes_of(target, batch)
    assert target.shares == [1 / B] * B

    def share(v, z):
        v["z"] = z

    def local(i, subset):
        def function(v, z):
            g = target.gradient(i, subset, v[x[i]])
            if q_c is not None:
                g = g - target.gradient(i, subset, v["y"]) + v["c"]
            noise = sqrt(tau / B) * v["z"] + sqrt(1 - tau) * z
            v[x[i]] = v[x[i]] - gamma * g + sqrt(2 * gamma * target.temperature) * noise

        return function

    def refer(moves):
        def function(v):
            v["next"] = sum(v[name] for name in x) / B if moves else v["y"]

        return function

    def renew(v):
        v["y"] = v["next"]
        v["c"] = sum(target.gradient(i, None, v["y"]) for i in range(B)) / B

    def average(v):
        v["mean"] = sum(v[name] for name in x) / B
        for name in x:
            v[name] = v["mean"]

    iteration = [s.op([(1.0, share)], normals=1)]
    for i in range(B):
        outcomes = [(p, local(i, subset)) for p, subset in minibatches(target.rows(i), sizes[i])]
        iteration.append(s.op(outcomes, normals=1))
    if q_c is not None:
        coin = s.op([(q_c, refer(True)), (1 - q_c, refer(False))])
        iteration = [coin, *iteration, s.op([(1.0, renew)])]
    return synchronised(s, then(*iteration), s.op([(1.0, average)]), None, p_c, "mean")


def dg_lmc(target, eta, weights, tether, every=None, p=None, batch=None):
    """DG-LMC Alg. 1, all A_i = I: gamma_i = eta / p_i, rho_i = tether gamma_i; the prior at the
    server is one of the Gaussian factors of its draw."""
    z = [f"z{i}" for i in range(B)]
    s = System("theta", *z)
    gamma = [eta / weight for weight in weights]
    rho = [tether * g for g in gamma]
    sizes = sizes_of(target, batch)

    def local(i, subset):
        def function(v, xi):
            drift = target.gradient(i, subset, v[z[i]]) + (v[z[i]] - v["theta"]) / rho[i]
            v[z[i]] = v[z[i]] - gamma[i] * drift + sqrt(2 * gamma[i] * target.temperature) * xi

        return function

    def draw(v, xi):
        covariance = np.linalg.inv(target.server_prior + sum(np.eye(D) / r for r in rho))
        v["theta"] = (
            covariance @ sum(v[z[i]] / rho[i] for i in range(B))
            + sqrt(target.temperature) * np.linalg.cholesky(covariance) @ xi
        )

    iteration = then(
        *[
            s.op(
                [
                    (chance, local(i, subset))
                    for chance, subset in minibatches(target.rows(i), sizes[i])
                ],
                normals=1,
            )
            for i in range(B)
        ]
    )
    return synchronised(s, iteration, s.op([(1.0, draw)], normals=1), every, p, "theta")


def fsgld(target, h, f, every, surrogates, batch=None):
    """FSGLD Alg. 1: one chain at client s with probability f_s for `every` steps, whose drift is
    (1/f_s) [minibatch gradient - grad l_s] + grad l + grad U_0, with grad l_s = Q_s x - q_s."""
    s = System("x")
    sizes = sizes_of(target, batch)
    whole = (sum(np.diag(q) for q, _ in surrogates), sum(np.array(r) for _, r in surrogates))

    def step(c, subset):
        def function(v, z):
            x = v["x"]
            likelihood = target.gradient(c, subset, x)
            own = np.diag(surrogates[c][0]) @ x - constant(surrogates[c][1], x)
            conducive = whole[0] @ x - constant(whole[1], x) - own / f[c]
            drift = likelihood / f[c] + conducive + target.server_prior @ x
            v["x"] = x - h * drift + sqrt(2 * h * target.temperature) * z

        return function

    visits = []
    for c in range(B):
        outcomes = [(p, step(c, subset)) for p, subset in minibatches(target.rows(c), sizes[c])]
        visits.append((f[c], np.linalg.matrix_power(s.op(outcomes, normals=1), every)))
    return s.law(s.stationary(mix(visits)), "x")


SURROGATES = [
    ([0.8, 0.5, 0.3], [0.4, -0.6, 0.2]),
    ([0.6, 0.9, 0.7], [-0.9, 0.7, 1.1]),
    ([1.0, 0.4, 1.2], [2.5, 0.8, -0.5]),
]


def cases():
    form = lambda **more: Target(gaussian(), **more)
    rows = lambda **more: Target(linear(), **more)
    equal = [1 / B] * B
    third = dict(shares=equal)
    unequal = [0.4, 0.9, 0.6]
    off = [0.6, 1.1, -0.3]
    one, two = masks(1), masks(2)
    shrunk = masks(1, factor=1.0)  # rand_1 / (1 + omega): omega + 1 is d/k

    # Family A: gradients, minibatches, who takes part.
    yield "posterior", (rows(temperature=0.8).mean(), 0.8 * np.linalg.inv(rows().precision()))
    yield "lmc", qlsd(form(temperature=0.7), 0.2)
    yield "lmc split prior", qlsd(form(shares=SPLIT), 0.2)
    yield "lmc flat prior", qlsd(form(prior=FLAT), 0.2)
    yield "lmc coins", qlsd(form(), 0.08, active=coins(unequal))
    yield "lmc elastic", qlsd(form(), 0.08, active=coins(unequal))
    yield "lmc coins ratio", qlsd(form(), 0.08, active=coins([0.5] * B, weigh="b/|A|"))
    yield "lmc two of three", qlsd(form(), 0.08, active=some(2))
    yield "sgld rows", qlsd(rows(), 0.03, batch=2)
    yield "sgld fraction", qlsd(Target(isotropic()), 0.03, batch=(45, 100))
    yield "sgld fraction split prior", qlsd(rows(shares=SPLIT), 0.03, batch=(45, 100))
    yield "lsd* off", qlsd(rows(), 0.03, batch=2, fixed=off)
    yield "lsd* coins", qlsd(rows(shares=SPLIT), 0.02, batch=2, fixed=off, active=coins(unequal))
    yield "lsd++", qlsd(rows(), 0.03, batch=2, every=4)
    yield (
        "lsd++ memory coins",
        qlsd(rows(), 0.012, batch=3, every=3, alpha=0.4, active=coins(unequal)),
    )
    yield (
        "lsd++ memory two of three",
        qlsd(rows(), 0.012, batch=3, every=3, alpha=0.7, active=some(2)),
    )

    # Family A: compression.
    yield "qlsd", qlsd(rows(), 0.02, up=[two] * B)
    yield "qlsd coins", qlsd(rows(), 0.012, batch=2, up=[two] * B, active=coins(unequal))
    yield "qlsd client by client", qlsd(rows(), 0.02, up=[one, masks(None), two])
    yield (
        "qlsd* coins",
        qlsd(rows(), 0.012, batch=2, fixed=off, up=[one] * B, active=coins(unequal)),
    )
    yield "qlsd++", qlsd(rows(), 0.012, batch=2, every=3, alpha=0.2, up=[two] * B)
    yield (
        "qlsd++ coins",
        qlsd(rows(), 0.008, batch=2, every=3, alpha=0.2, up=[one] * B, active=coins(unequal)),
    )
    yield "bi-qlsd++", qlsd(rows(), 0.01, batch=2, every=3, alpha=0.2, up=[two] * B, down=shrunk)
    yield (
        "qlsd* exact error",
        qlsd(rows(temperature=0.6), 0.03, batch=2, fixed=off, noise="clients"),
    )
    yield "d-elf", elf(form(), 0.05, up=shrunk)
    yield "p-elf", elf(form(), 0.05, down=shrunk)
    yield "b-elf", elf(form(), 0.05, up=shrunk, down=masks(2, factor=1.0))
    yield "d-elf minibatches", elf(rows(), 0.008, up=shrunk, batch=2)
    yield "marina", marina(form(temperature=0.6), 0.05, 0.3, one)

    # Family B.
    for tau in (0.0, 0.5, 1.0):
        yield f"fald {tau}", fald(form(**third), 0.25, tau, 0.3)
    yield "fald minibatches", fald(rows(**third), 0.05, 0.5, 0.4, batch=2)
    yield "vr-fald*", fald(form(temperature=0.8, **third), 0.25, 0.4, 0.3, q_c=0.2)
    yield "vr-fald* minibatches", fald(rows(**third), 0.05, 0.5, 0.4, q_c=0.3, batch=2)
    weighted = dict(shares=WEIGHTS, temperature=0.8)
    yield "vr-fald* weights", fa_ld(form(**weighted), 0.08, WEIGHTS, 0.4, every=4, q=0.4)
    yield "fa-ld", fa_ld(form(**weighted), 0.06, WEIGHTS, 0.6, every=4)
    yield "fa-ld own split", fa_ld(form(shares=SPLIT), 0.06, WEIGHTS, 0.6, every=4)
    yield "fa-ld minibatches", fa_ld(rows(shares=WEIGHTS), 0.012, WEIGHTS, 0.6, every=3, batch=2)
    for noise in ("published", "participants"):
        scheme = dict(every=3, size=2, noise=noise)
        first = fa_ld(form(**weighted), 0.05, WEIGHTS, 0.6, scheme="I", **scheme)
        yield f"fa-ld scheme I {noise}", first
        second = fa_ld(form(**third), 0.05, equal, 0.3, scheme="II", **scheme)
        yield f"fa-ld scheme II {noise}", second
    yield (
        "fa-ld compressed",
        fa_ld(form(**weighted), 0.06, WEIGHTS, 0.6, every=4, up=two, alpha=0.5),
    )
    yield (
        "vr-fald* compressed",
        fa_ld(form(**third), 0.08, equal, sqrt(0.2), p=0.3, q=0.3, up=one, alpha=0.25),
    )
    yield "dg-lmc", dg_lmc(form(temperature=0.7), 0.05, WEIGHTS, 3.0, every=4)
    yield "dg-lmc split prior", dg_lmc(form(shares=SPLIT), 0.05, WEIGHTS, 3.0, every=4)
    yield "dg-lmc random", dg_lmc(form(), 0.05, WEIGHTS, 3.0, p=0.4)
    yield "dg-lmc minibatches", dg_lmc(rows(), 0.01, WEIGHTS, 2.0, every=3, batch=2)
    yield "fsgld", fsgld(form(temperature=0.8), 0.04, WEIGHTS, 3, SURROGATES)
    yield "fsgld minibatches", fsgld(rows(), 0.004, WEIGHTS, 3, SURROGATES, batch=2)

    # Other coordinates.
    yield "lmc whitened", preconditioned(rows(temperature=0.7), 0.3)
    yield "sgld whitened", preconditioned(rows(), 0.1, batch=2)

    # What the registry's names mean where nothing more is said: omega of rand_k(1) is d - 1 = 2, so
    # memories follow at 1/(1 + omega) = 1/3; gradients are sent in full once in 10 rounds; a
    # reference point lasts 100 rounds, or moves as often as clients synchronise, which is once in
    # 10 iterations; a tether is as long as a walk; weights are equal.
    yield "default lsd++", qlsd(rows(), 0.03, batch=2, every=100)
    yield "default qlsd++", qlsd(rows(), 0.01, batch=2, every=5, alpha=1 / 3, up=[one] * B)
    yield (
        "default bi-qlsd++",
        qlsd(rows(), 0.008, batch=2, every=5, alpha=1 / 3, up=[one] * B, down=shrunk),
    )
    yield "default marina-ld", marina(form(), 0.04, 0.1, one)
    yield "default fald", fald(form(**third), B * 0.03, 0.0, 0.1)
    yield "default vr-fald*", fald(form(**third), B * 0.03, 0.0, 0.1, q_c=0.1)
    yield "default fa-ld", fa_ld(form(**third), 0.03, equal, 0.0, every=10)
    yield (
        "default fa-ld compressed",
        fa_ld(form(**third), 0.03, equal, 0.0, every=10, up=one, alpha=1 / 3),
    )
    yield "default dg-lmc", dg_lmc(form(), 0.03, equal, 10.0, every=10)
    yield "default dg-lmc weights", dg_lmc(form(), 0.03, WEIGHTS, 4.0, every=4)


def main():
    write = lambda numbers: " ".join(repr(float(number)) for number in np.ravel(numbers))
    with open(HERE / "laws_rows.csv", "w") as file:
        for client, rows in enumerate(ROWS):
            for row in rows:
                file.write(f"{client},{write(row[:D])},{row[D]!r}\n")
    with open(HERE / "laws.csv", "w") as file:
        for name, (mean, covariance) in cases():
            assert np.linalg.eigvalsh(covariance).min() > 0, name
            file.write(f"{name},{write(mean)},{write(covariance)}\n")


if __name__ == "__main__":
    main()
