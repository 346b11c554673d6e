"""The log: topics, producers, consumers, bodies and codecs. The only package that talks to Kafka.

``interface`` holds what consumers program against; ``producer``, ``consumer`` and ``topics`` implement it on Kafka,
``tests/fakes/bus.py`` implements it in memory; one contract suite runs on both.
"""
