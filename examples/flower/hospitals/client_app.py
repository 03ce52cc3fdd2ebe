"""A site: its rows are the file that its node config names, and stay there."""

from consilience.flower import client_app

app = client_app()
