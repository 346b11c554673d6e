"""Contracts on the wire and at rest: pydantic models and pure rules, no input or output.

Every other package imports from here and nothing here imports from them. Times are integers in microseconds since
the epoch (UTC); versions are the owner's observation clock in the same unit and stay below 2**53.
"""
