"""Benchmarks of the running product: each starts what it needs in a namespace of its own, measures, and tidies up.

    report     what a benchmark says: one JSON line, percentiles, verdicts      pure
    pages      documents to ingest: real pages and seeded shuffles of them      pure
    synthetic  a large corpus by seeded perturbation of embedded passages       pure
    endstate   what an index holds, to compare two of them                      pure
    world      processes in their own namespace on the bench's services
    receipts   follows what became of events; feeding: gateway client and owner's ledger
    seeding    writes the synthetic corpus through the real flow and store
    ingest, lag, search, history, memory     the benchmarks; registry lists them

The services are the launcher's, in a state directory of their own, so that nothing of a running product is touched.
"""
