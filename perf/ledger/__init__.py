"""What each path costs, in what can be counted without a clock, beside the table of that."""
