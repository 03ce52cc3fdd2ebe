"""Write offsets.csv and offsets_reference.csv: what statsmodels and scipy say of regressions whose
rows have offsets and weights.

    python make_offsets_reference.py        (needs statsmodels, scipy, numpy)

The rows are drawn here, with a fixed seed: visits during some days, and how many people had so
many. Nothing here is computed by this project.
"""

from pathlib import Path

import numpy as np
import statsmodels.api as sm
from scipy import stats

HERE = Path(__file__).parent
draw = np.random.default_rng(22)
n = 90
site = np.repeat(["north", "south", "west"], n // 3)
x = draw.normal(size=n).round(3)
days = draw.integers(20, 400, size=n)
people = draw.integers(0, 5, size=n)
visits = draw.negative_binomial(3, 3 / (3 + days / 100 * np.exp(0.4 + 0.5 * x)))
ill = (visits > 2).astype(int)
with open(HERE / "offsets.csv", "w") as file:
    file.write("site,x,days,people,visits,ill\n")
    for row in zip(site, x, days, people, visits, ill):
        file.write(",".join(map(str, row)) + "\n")

lines = []


def add(what, values):
    for k, value in enumerate(np.ravel(values)):
        lines.append(f"{what},{k},{value:.17g}")


design, offset = sm.add_constant(x), np.log(days / 100)
points = [np.array([0.3, 0.6]), np.array([-0.2, -0.4])]
for k, point in enumerate(points):
    add(f"point {k}", point)

poisson = sm.GLM(visits, design, sm.families.Poisson(), offset=offset, freq_weights=people)
logistic = sm.GLM(ill, design, sm.families.Binomial(), offset=offset, freq_weights=people)
for name, model in [("poisson", poisson), ("logistic", logistic)]:
    for k, point in enumerate(points):
        add(f"{name} value {k}", model.loglike(point) - model.loglike(np.zeros(2)))
        add(f"{name} score {k}", model.score(point))
    add(f"{name} maximum", model.fit(tol=1e-12).params)

# What the Poisson model at the first point expects of the first rows.
add("poisson mean", np.exp(design[:5] @ points[0] + offset[:5]))


# Of shape 2: mean exp(t), variance mean + mean^2 / 2.
def negative_binomial(point, shape=2.0):
    mean = np.exp(design @ point + offset)
    return people @ stats.nbinom.logpmf(visits, shape, shape / (shape + mean))


for k, point in enumerate(points):
    change = negative_binomial(point) - negative_binomial(np.zeros(2))
    add(f"negative_binomial value {k}", change)


# Student's t of 4 degrees around the line, of scale 1.5.
def student_t(point):
    return people @ stats.t.logpdf(visits, 4, design @ point + offset, 1.5)


for k, point in enumerate(points):
    add(f"student_t value {k}", student_t(point) - student_t(np.zeros(2)))

# Noise of sd `days / 100` for each row: a weight of 1 / sd^2 where the variance is 1.
for k, point in enumerate(points):
    normal = lambda at: stats.norm.logpdf(visits, design @ at, days / 100).sum()
    add(f"linear value {k}", normal(point) - normal(np.zeros(2)))

(HERE / "offsets_reference.csv").write_text("\n".join(["what,k,value", *lines]) + "\n")
