"""A module for each page: what it asks of the cluster, and how it is put together."""
