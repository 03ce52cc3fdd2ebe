"""Make rows of three sites, and the columns that products of them have, by patsy.

Writes products.csv (the rows; the site north lacks a town) and products_reference.csv: for every
formula the names of its columns, then their values in some rows. Names are written as this project
writes them, and the reference of every column of words is its most common level, which is the first
in the alphabet here, so that it is patsy's as well.

    pip install numpy patsy && python make_products_reference.py
"""

import csv
import re
from pathlib import Path

import numpy as np
from patsy import build_design_matrices, dmatrix

HERE = Path(__file__).parent

FORMULAS = [
    "age*sex",
    "sex + age:sex",
    "age + age:sex",
    "age:sex",
    "town*sex",
    "town:sex",
    "town + town:sex",
    "sex + town:sex",
    "0 + town:sex",
    "0 + sex + age:sex",
    "0 + age*town",
    "age*town*sex",
    "sex + age:town:sex",
    "age*dose*sex",
    "dose:age:sex",
    "bs(age, 4)*sex",
    "bs(age, 4):dose",
    "smokes*sex",
    "smokes:town",
    "C(ward)*age",
    "log(dose)*sex",
    "I(age^2):town + age*town",
]


def rows():
    rng = np.random.default_rng(5)
    made = []
    for site, count in [("north", 40), ("south", 61), ("west", 33)]:
        towns = ["bern", "genf"] if site == "north" else ["bern", "chur", "genf"]
        chances = [0.6, 0.4] if site == "north" else [0.5, 0.2, 0.3]
        for _ in range(count):
            age = int(rng.integers(20, 81))
            dose = round(float(rng.gamma(2.0, 1.5)) + 0.1, 3)
            sex = "f" if rng.random() < 0.6 else "m"
            town = str(rng.choice(towns, p=chances))
            ward = int(rng.choice([1, 2, 4], p=[0.5, 0.2, 0.3]))
            smokes = int(rng.random() < 0.3)
            slope = 0.02 if sex == "f" else 0.05
            pain = round(float(slope * age + 0.2 * (town == "genf") + 0.5 * rng.normal()), 3)
            made.append([site, age, dose, sex, town, ward, smokes, pain])
    return made


def name_of(patsys):
    """`age:sex[T.m]` of patsy is `age:sex: m` here."""
    if patsys == "Intercept":
        return "intercept"
    titles, levels = [], []
    for part in re.split(r":(?![^(]*\))", patsys):
        found = re.fullmatch(r"(.*)\[(?:T\.)?(.*)\]", part)
        title = found[1] if found else part
        title = title.replace("np.", "").replace("**", "^").replace("age ^ 2", "age^2")
        title = title.replace("C(ward)", "ward").replace("bs(age, 4, degree=3)", "bs(age, 4)")
        titles.append(title)
        if found:
            level = re.sub(r"np.int64\((.*)\)", r"\1", found[2])
            levels.append(str(int(level) + 1) if title.startswith("bs(") else level)
    return ":".join(titles) + (": " + ":".join(levels) if levels else "")


def main():
    made = rows()
    names = ["site", "age", "dose", "sex", "town", "ward", "smokes", "pain"]
    with open(HERE / "products.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(made)
    data = {name: [row[k] for row in made] for k, name in enumerate(names)}
    data = {k: np.array(v) for k, v in data.items()}
    for words in ["sex", "town", "ward"]:
        levels, counts = np.unique(data[words], return_counts=True)
        assert counts[0] == counts.max(), (words, levels, counts)
    probes = list(range(0, len(made), 9))
    new = {k: v[probes] for k, v in data.items()}
    with open(HERE / "products_reference.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["formula", "row", "values"])
        for formula in FORMULAS:
            patsys = formula.replace("log(", "np.log(").replace("I(age^2)", "I(age**2)")
            patsys = patsys.replace("bs(age, 4)", "bs(age, 4, degree=3)")
            matrix = dmatrix(patsys, data)
            info = matrix.design_info
            here = [name_of(name) for name in info.column_names]
            writer.writerow([formula, "names", "; ".join(here)])
            (values,) = build_design_matrices([info], new)
            for row, numbers in zip(probes, np.asarray(values)):
                writer.writerow([formula, row, " ".join(repr(float(x)) for x in numbers)])


if __name__ == "__main__":
    main()
