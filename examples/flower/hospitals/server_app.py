"""The server: it has the config, and no rows."""

import os
from pathlib import Path

from consilience.flower import server_app

app = server_app(Path(os.environ.get("CONSILIENCE_CONFIG", Path(__file__).with_name("sites.toml"))))
