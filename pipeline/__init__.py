"""The shared core, one folder a stage: sources → bus → extract → chunk → embed → index.

Stages never import each other; ``flow`` is the only place where they meet and ``bootstrap`` the only one that picks
adapters from settings.
"""
