"""The numbers of others for the examples on real data: lifelines (Cox), statsmodels (negative
binomial, ordinal), and NUTS by PyMC and nutpie with the priors of the configs, where effects of
sites and missing values are parameters. Rows are pooled.

    pip install lifelines statsmodels pandas pymc nutpie && python references.py [cox|weibull|...]
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

warnings.filterwarnings("ignore")
DATA = Path(__file__).parent.parent.parent / "data"


def z(values):
    return (values - values.mean()) / values.std(ddof=1)


def show(title, names, means, sds):
    print(title)
    for name, mean, sd in zip(names, means, sds):
        print(f"  {name:<24} {mean:9.4f} {sd:8.4f}")


def lung():
    d = pd.read_csv(DATA / "lung/lung.csv")
    x = pd.DataFrame({"age": z(d.age), "sex: 2": (d.sex == 2) * 1.0, "ph_ecog": z(d.ph_ecog)})
    return d, x


def cox():
    from lifelines import CoxPHFitter

    d, x = lung()
    rows = x.assign(time=d.time, status=d.status, inst=d.inst)
    fit = CoxPHFitter().fit(rows, "time", "status", strata=["inst"]).summary
    show("Cox, strata by institution (lifelines)", x.columns, fit["coef"], fit["se(coef)"])


def weibull():
    import pymc as pm

    d, x = lung()
    site, sites = pd.factorize(d.inst)
    time, event = np.log(d.time.values), d.status.values
    with pm.Model():
        b = pm.Normal("b", [6, 0, 0, 0], 2.5, shape=4)
        shape = pm.HalfNormal("shape", 2)
        tau = pm.HalfNormal("tau", 1)
        effect = tau * pm.Normal("effect", 0, 1, shape=len(sites))
        e = shape * (time - (b[0] + x.values @ b[1:] + effect[site]))
        pm.Potential("rows", (event * (e + pm.math.log(shape)) - pm.math.exp(e)).sum())
        names = ["intercept", *x.columns, "shape", "sd(1 | site)"]
        sample("Weibull with (1 | site) (NUTS)", names, ["b", "shape", "tau"])


def hospitals():
    names = "age sex cp trestbps chol fbs restecg thalach exang oldpeak slope ca thal num".split()
    parts = []
    for site in ["cleveland", "hungarian", "switzerland", "va"]:
        file = DATA / f"heart-disease/processed.{site}.data"
        parts.append(pd.read_csv(file, header=None, names=names, na_values="?").assign(site=site))
    d = pd.concat(parts, ignore_index=True)
    sex = (d.sex == 0) * 1.0  # compared with the most common, 1
    x = pd.DataFrame({"age": z(d.age), "sex: 0": sex})
    for level in [1, 2, 3]:
        x[f"cp: {level}"] = (d.cp == level) * 1.0
    return d, x, (d.num > 0).values * 1


def heart():
    import pymc as pm

    d, x, ill = hospitals()
    site, sites = pd.factorize(d.site)
    with pm.Model():
        b = pm.Normal("b", 0, 2.5, shape=6)
        tau = pm.HalfStudentT("tau", 3, 2.5)
        # hospitals have hundreds of rows: not as tau times a standard normal, whose chains hardly
        # reach large tau
        effect = pm.Normal("effect", 0, tau, shape=len(sites))
        pm.Bernoulli("y", logit_p=b[0] + x.values @ b[1:] + effect[site], observed=ill)
        names = ["intercept", *x.columns, "sd(1 | site)"]
        # chains are slow in the long tail of tau
        sample("Heart disease with (1 | site) (NUTS)", names, ["b", "tau"], draws=40000)


def incomplete(d, x):
    """Adds what `thalach` and `oldpeak` make of the predictor, where they are missing as
    parameters: each is normal given the other columns, `oldpeak` given `thalach` too."""
    import pymc as pm
    import pytensor.tensor as pt

    given = np.c_[np.ones(len(x)), x.values]
    b = pm.Normal("b", 0, 2.5, shape=3 + x.shape[1])
    t, before = b[0] + x.values @ b[3:], []
    for k, name in enumerate(["thalach", "oldpeak"]):
        column = z(d[name]).values
        lacks = np.isnan(column)
        law = pm.Normal(f"law_{k}", 0, 2.5, shape=given.shape[1] + k)
        sd = pm.Exponential(f"sd_{k}", 1)
        mean = pt.dot(given, law[: given.shape[1]])
        for i, other in enumerate(before):
            mean = mean + law[given.shape[1] + i] * other
        pm.Normal(f"known_{k}", mean[~lacks], sd, observed=column[~lacks])
        drawn = mean[lacks] + sd * pm.Normal(f"z_{k}", 0, 1, shape=int(lacks.sum()))
        before.append(pt.set_subtensor(pt.as_tensor(np.nan_to_num(column))[lacks], drawn))
        t = t + b[1 + k] * before[k]
    return t


def missing():
    import pymc as pm

    d, x, ill = hospitals()
    for site in ["hungarian", "switzerland", "va"]:
        x[f"site: {site}"] = (d.site == site) * 1.0
    with pm.Model():
        pm.Bernoulli("y", logit_p=incomplete(d, x), observed=ill)
        names = ["intercept", "thalach", "oldpeak", *x.columns, "sd(thalach)", "sd(oldpeak)"]
        sample("Heart disease, missing values as parameters (NUTS)", names, ["b", "sd_0", "sd_1"])


def visits():
    import statsmodels.api as sm

    d = pd.read_csv(DATA / "randhie/randhie.csv.xz")
    plain = lambda c: d[c] if set(d[c].unique()) <= {0, 1} else z(d[c])
    x = pd.DataFrame({c: plain(c) for c in d.columns if c != "mdvis"})
    x.insert(0, "intercept", 1.0)
    fit = sm.NegativeBinomial(d.mdvis, x).fit(disp=0, maxiter=200)
    alpha, error = fit.params["alpha"], fit.bse["alpha"]
    names = [*x.columns, "shape"]
    means = [*fit.params[:-1], 1 / alpha]
    show("Visits (statsmodels)", names, means, [*fit.bse[:-1], error / alpha**2])


def party():
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    d = pd.read_csv(DATA / "anes96/anes96.csv")
    x = pd.DataFrame({"log(popul + 0.1)": z(np.log(d.popul + 0.1)), "selfLR": z(d.selfLR),
                      "age": z(d.age), "educ": z(d.educ), "income": z(d.income)})
    fit = OrderedModel(d.PID, x, distr="logit").fit(method="bfgs", disp=0)
    show("Party identification (statsmodels)", x.columns, fit.params[:5], fit.bse[:5])
    cuts = fit.model.transform_threshold_params(fit.params[-6:])[1:-1]
    print("  cut points", *(f"{c:.4f}" for c in cuts))


def sample(title, names, variables, draws=4000):
    import nutpie
    import pymc as pm

    compiled = nutpie.compile_pymc_model(pm.modelcontext(None), backend="numba")
    trace = nutpie.sample(compiled, draws=draws, tune=1000, chains=4, seed=1, target_accept=0.95,
                          progress_bar=False)
    draws = [trace.posterior[v].values.reshape(4 * draws, -1) for v in variables]
    draws = np.concatenate(draws, axis=1)
    show(title, names, draws.mean(axis=0), draws.std(axis=0, ddof=1))
    import arviz

    least = arviz.ess(trace, var_names=variables).to_array().min()
    print(f"  at least {float(least):.0f} effective draws")


ALL = {f.__name__: f for f in [cox, weibull, heart, missing, visits, party]}
for name in sys.argv[1:] or ALL:
    ALL[name]()
