"""What the client does natively: encoding sends, cutting frames, reading their answers."""
