"""Stores at rest as Spark reads them."""
