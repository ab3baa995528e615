"""Who of several brokers of one name leads: elected by etcd (docs/replication.md)."""
