"""A real broker for the tests of applications. docs/testing.md shows it, and the pytest plug-in."""
from mqcore.testing.running import Broker, TestingError, broker

__all__ = ["Broker", "TestingError", "broker"]
