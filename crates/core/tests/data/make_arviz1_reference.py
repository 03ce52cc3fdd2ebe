"""Record what ArviZ 1.x says of the draws in draws.csv, for tests/measure_reference.rs.

    python3.13 -m venv venv && venv/bin/pip install arviz==1.3.0
    venv/bin/python crates/core/tests/data/make_arviz1_reference.py

writes arviz1.csv beside itself: case,measure,value. The measures are the columns of `az.summary`
with nothing rounded: intervals are equal-tailed with a mass of 0.89 (`stats.ci_kind`,
`stats.ci_prob`), and `ess_tail` is the smaller of the effective sizes for the 11% and 89%
quantiles.
"""

import warnings
from pathlib import Path

warnings.simplefilter("ignore")
import arviz as az
import numpy as np

HERE = Path(__file__).parent


def main():
    assert az.__version__.startswith("1."), az.__version__
    cases = {}
    for line in (HERE / "draws.csv").read_text().splitlines():
        case, _, draws = line.split(",")
        cases.setdefault(case, []).append([float(x) for x in draws.split()])
    lines = []
    for case, chains in cases.items():
        table = az.summary(az.from_dict({"posterior": {"x": np.array(chains)}}), round_to="none")
        lines += [
            f"{case},{measure},{float(table.loc['x', measure])!r}" for measure in table.columns
        ]
    (HERE / "arviz1.csv").write_text("\n".join(lines) + "\n")


main()
