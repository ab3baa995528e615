"""What the client does natively: encoding sends, cutting frames and records, columns."""
