"""Brokers of one name that elect by etcd who of them leads."""
