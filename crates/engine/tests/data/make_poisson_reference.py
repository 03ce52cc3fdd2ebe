"""Write poisson.csv: what statsmodels and a quadrature say of Poisson regression on randhie.csv.

    python make_poisson_reference.py        (needs statsmodels, numpy)

randhie.csv is every 51st row of the RAND health insurance experiment (Deb and Trivedi 2002), as
statsmodels ships it (public domain): visits to a doctor, log of the coinsurance rate, chronic
diseases, good health. Nothing here is computed by this project.
"""

import itertools
from pathlib import Path

import numpy as np
import statsmodels.api as sm

HERE = Path(__file__).parent
VARIANCE = 6.25  # of the prior of every parameter

table = np.loadtxt(HERE / "randhie.csv", delimiter=",", skiprows=1)
y, x = table[:, 0], np.column_stack([np.ones(len(table)), table[:, 1:]])
model = sm.Poisson(y, x)
d = x.shape[1]
lines = []


def add(what, values):
    for k, value in enumerate(np.ravel(values)):
        lines.append(f"{what},{k},{value:.17g}")


# The likelihood and its derivatives at two points.
points = [np.array([0.3, -0.1, 0.04, 0.2]), np.array([1.1, 0.05, -0.03, -0.7])]
for k, point in enumerate(points):
    add(f"point {k}", point)
    # statsmodels has the factorials in the likelihood; a difference has not
    add(f"value {k}", model.loglike(point) - model.loglike(np.zeros(d)))
    add(f"score {k}", model.score(point))
    add(f"hessian {k}", model.hessian(point))
    add(f"log-density {k}", model.loglike(point))

# The maximum of the likelihood.
fit = model.fit(disp=False, method="newton", maxiter=100, tol=1e-12)
add("maximum", fit.params)
add("standard errors", fit.bse)


# The posterior under a normal prior: its mode by Newton's method, its moments by a product of
# Gauss-Hermite rules in the coordinates in which it is nearly standard normal.
def log_posterior(at):
    return model.loglike(at) - at @ at / (2 * VARIANCE)


mode = fit.params.copy()
for _ in range(50):
    hessian = model.hessian(mode) - np.eye(d) / VARIANCE
    mode -= np.linalg.solve(hessian, model.score(mode) - mode / VARIANCE)
root = np.linalg.cholesky(np.linalg.inv(np.eye(d) / VARIANCE - model.hessian(mode)))
nodes, weights = np.polynomial.hermite_e.hermegauss(13)
height = log_posterior(mode)
mass, first, second = 0.0, np.zeros(d), np.zeros((d, d))
for places in itertools.product(range(len(nodes)), repeat=d):
    z = nodes[list(places)]
    at = mode + root @ z
    share = np.prod(weights[list(places)]) * np.exp(log_posterior(at) - height + z @ z / 2)
    mass += share
    first += share * at
    second += share * np.outer(at, at)
mean = first / mass
add("posterior mean", mean)
add("posterior sd", np.sqrt(np.diag(second / mass - np.outer(mean, mean))))

(HERE / "poisson.csv").write_text("what,place,value\n" + "\n".join(lines) + "\n")
