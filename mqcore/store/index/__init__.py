"""The key index: written by the dispatcher, asked by key and time, mended at a start."""
