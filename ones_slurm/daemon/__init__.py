"""`onesd`: the engine behind an HTTP API with authenticated peers."""
