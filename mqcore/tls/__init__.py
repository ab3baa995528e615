"""TLS of brokers and name servers: settings, the files that they name, stock's words for them."""
