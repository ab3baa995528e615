"""What the client does natively: sends and their answers, frames, records, columns."""
