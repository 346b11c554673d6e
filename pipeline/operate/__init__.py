"""What operators do with the whole: transitions, builds, verification, tiers, reconciliation, audits, erasure.

The command line and Dagster call the same functions; none of them appends content or access events.
"""
