"""Spark looks for modules of such names: here it finds what the job `store-audit` reads."""
from mqcore.spark.store.audit_source import AuditSource as DefaultSource

__all__ = ["DefaultSource"]
