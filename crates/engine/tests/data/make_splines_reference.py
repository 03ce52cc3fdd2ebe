"""Make rows, and the columns that splines of them have: B-splines by patsy, natural ones by the
steps of R's splines::ns with SciPy's B-splines and LAPACK's QR decomposition.

Writes splines.csv (the rows, of three sites) and splines_reference.csv (the knots, and the columns
at some values, of which some lie outside). Natural splines are checked to span the same space as
patsy's cr(), and to be straight beyond the outer knots.

    pip install numpy scipy patsy && python make_splines_reference.py
"""

import csv
from pathlib import Path

import numpy as np
from patsy import dmatrix
from scipy.interpolate import BSpline

HERE = Path(__file__).parent


def rows():
    rng = np.random.default_rng(11)
    made = []
    for site, count in [("north", 31), ("south", 58), ("west", 24)]:
        for _ in range(count):
            age = int(rng.integers(20, 81))
            dose = round(float(rng.gamma(2.0, 1.5)), 3)
            trend = np.sin(age / 12) + 0.3 * np.log(dose + 0.1)
            pain = round(float(trend + 0.5 * rng.normal()), 3)
            ill = int(rng.random() < 1 / (1 + np.exp(-trend)))
            made.append([site, age, dose, pain, ill])
    return made


def all_knots(inner, bounds, degree):
    return np.r_[[bounds[0]] * (degree + 1), inner, [bounds[1]] * (degree + 1)]


def b_splines(x, inner, bounds, degree, derivative=0):
    """All B-splines but the first; beyond the outer knots the outermost polynomials."""
    knots = all_knots(inner, bounds, degree)
    count = len(knots) - degree - 1
    columns = []
    for k in range(1, count):
        spline = BSpline(knots, np.eye(count)[k], degree, extrapolate=True)
        columns.append(spline.derivative(derivative)(x) if derivative else spline(x))
    return np.array(columns).T


def natural(x, inner, bounds):
    """As R's ns(x, knots = inner, Boundary.knots = bounds) does it."""
    inside = np.clip(x, *bounds)
    basis = b_splines(inside, inner, bounds, 3)
    slopes = b_splines(inside, inner, bounds, 3, 1)
    basis = basis + (x - inside)[:, None] * slopes
    const = b_splines(np.array(bounds), inner, bounds, 3, 2)
    q, _ = np.linalg.qr(const.T, mode="complete")
    return basis @ q[:, 2:]


def main():
    made = rows()
    with open(HERE / "splines.csv", "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["site", "age", "dose", "pain", "ill"])
        out.writerows(made)
    age = np.array([row[1] for row in made], float)
    at = np.array([15.0, 20.0, 27.0, 33.5, 48.0, 60.25, 71.0, 80.0, 86.0])
    # the bounds are those of the values: they are on the grid of the outer knots
    bounds = (age.min(), age.max())
    with open(HERE / "splines_reference.csv", "w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["spline", "what", "numbers"])

        def write(spline, what, numbers):
            written = " ".join(repr(float(n)) for n in numbers)
            out.writerow([spline.replace(",", ";"), what, written])

        for df, degree in [(5, 3), (6, 2), (3, 3), (4, 1)]:
            spline = f"bs(age, {df}, {degree})"
            inner = np.quantile(age, np.linspace(0, 1, df - degree + 2)[1:-1])
            write(spline, "knots", [bounds[0], *inner, bounds[1]])
            found = b_splines(at, inner, bounds, degree)
            within = at[(at >= bounds[0]) & (at <= bounds[1])]
            # patsy's own knots, from the same rows
            patsys = dmatrix(
                f"bs(x, df={df}, degree={degree}) - 1",
                {"x": np.r_[age, within]},
            ) if len(inner) == 0 else dmatrix(
                f"bs(x, knots={list(map(float, inner))}, degree={degree}, lower_bound={bounds[0]},"
                f" upper_bound={bounds[1]}) - 1",
                {"x": np.r_[age, within]},
            )
            patsys = np.asarray(patsys)[len(age):]
            assert np.abs(patsys - b_splines(within, inner, bounds, degree)).max() < 1e-12
            own = np.asarray(dmatrix(f"bs(x, df={df}, degree={degree}) - 1", {"x": age}))
            assert np.abs(own - b_splines(age, inner, bounds, degree)).max() < 1e-12
            for x, row in zip(at, found):
                write(spline, repr(float(x)), row)
        for df in [2, 3, 4, 7]:
            spline = f"ns(age, {df})"
            inner = np.quantile(age, np.linspace(0, 1, df + 1)[1:-1])
            write(spline, "knots", [bounds[0], *inner, bounds[1]])
            found = natural(at, inner, bounds)
            assert found.shape[1] == df
            # the same space as patsy's natural cubic splines, with the constant
            space = np.asarray(dmatrix(
                f"cr(x, knots={list(map(float, inner))}, lower_bound={bounds[0]},"
                f" upper_bound={bounds[1]}) - 1", {"x": age}))
            whole = np.c_[np.ones(len(age)), natural(age, inner, bounds)]
            assert np.linalg.matrix_rank(space) == df + 1 == np.linalg.matrix_rank(whole)
            fitted = space @ np.linalg.lstsq(space, whole, rcond=None)[0]
            assert np.abs(fitted - whole).max() < 1e-10
            for x, row in zip(at, found):
                write(spline, repr(float(x)), row)


main()
