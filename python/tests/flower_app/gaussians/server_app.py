"""Run every config that the test has written, and write down the digest of each."""

import json
import os
from pathlib import Path

from consilience.flower import run
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    folder = Path(os.environ["CONSILIENCE_TEST"])
    for config in json.loads((folder / "configs.json").read_text()):
        result = run(grid, context, config)
        with (folder / "digests").open("a") as file:
            file.write(f"{config['sampler']['name']} {result.digest}\n")
