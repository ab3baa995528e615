"""The client's native part: sends and their answers, frames, records, columns."""
