"""The load generator behind `mqcore bench`: connections, frames, latency histograms."""
