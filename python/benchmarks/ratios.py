"""Print a Markdown table of iterations a CPU second, ours beside the peers', from the lines of JSON
that a side-by-side run wrote.

    python ratios.py out.jsonl

Each line has `id`, `variant`, `chains`, `name` (`other` is ours), `iters` and `cpu_seconds`; the
best of several passes counts.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path

PEERS = ("numpy", "torch", "torch_compile", "jax", "numba", "jax_hash")


def rate(value: float | None) -> str:
    """Three digits or so."""
    if value is None:
        return "-"
    return (
        f"{value / 1e3:.3g}k"
        if value >= 1e4
        else f"{value:.0f}"
        if value >= 100
        else f"{value:.1f}"
    )


def main() -> None:
    best: dict[tuple[str, str, int], dict[str, float]] = defaultdict(dict)
    for line in Path(sys.argv[1]).read_text().splitlines():
        run = json.loads(line)
        if run.get("cpu_seconds"):
            rates = best[run["id"], run["variant"].replace("--", "").strip(), run["chains"]]
            rates[run["name"]] = max(rates.get(run["name"], 0.0), run["iters"] / run["cpu_seconds"])
    there = [peer for peer in PEERS if any(peer in rates for rates in best.values())]
    print("| |", " | ".join(["variant", "chains", *there, "ours", "ours / strongest peer"]), "|")
    print("|---" * (len(there) + 5) + "|")
    for (workload, variant, chains), rates in best.items():
        ours, peers = rates.get("other"), [rates[peer] for peer in there if peer in rates]
        ratio = f"{ours / max(peers):.2f}" if ours and peers else "-"
        print(
            "|",
            " | ".join(
                [
                    workload,
                    variant,
                    str(chains),
                    *(rate(rates.get(peer)) for peer in there),
                    rate(ours),
                    ratio,
                ]
            ),
            "|",
        )


if __name__ == "__main__":
    main()
