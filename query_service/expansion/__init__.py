"""Query expansion: further queries by rules or by a generator, their lists merged. It only ever adds queries."""
