"""Where config, backends, strategies, data and metrics meet: one job a file."""
