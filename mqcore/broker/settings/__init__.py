"""The settings of a broker: what there is, where it comes from, what requests change."""
