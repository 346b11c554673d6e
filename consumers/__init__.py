"""Processes that own a Kafka loop. ``python -m consumers NAME`` starts one.

``runtime`` reads, tracks, retries, leaves in order and reports its health; a lane (access, index, …) says what is
done with the records of a partition.
"""
