"""Parts that every process of a run shares: its life, signals, settings and accounts."""
