"""Moved to ``query_service.text.amounts``."""

from query_service.text.amounts import (
    MONEY,
    NEVER,
    Bound,
    Quantity,
    any_differs,
    between,
    differ,
    equal,
    quantities,
)

__all__ = ["MONEY", "NEVER", "Bound", "Quantity", "any_differs", "between", "differ", "equal", "quantities"]
