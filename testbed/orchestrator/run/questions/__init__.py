"""Questions about plug-ins and models, which a worker process answers."""
