"""Sources: connectors that read a system, and the ledger that turns what they saw into events.

``ledger`` is the pure core of every owner, the change gateway included; ``folder`` is the first connector.
"""
