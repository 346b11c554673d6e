"""The Model Context Protocol over the same scope as the REST routes: ``POST /mcp``."""
