from consilience.flower import client_app

app = client_app()
