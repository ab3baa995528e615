"""What a broker knows besides its messages: tables, and the files that keep them."""
