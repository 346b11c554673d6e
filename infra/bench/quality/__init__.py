"""Quality of extraction and chunking, measured in this process: no service is needed.

truth               what is to be found in each file of samples/formats                  pure
scores              words, cells, code and heading paths found of it                     pure
readers             what our readers find; what plain ``unstructured`` finds, in a child
plain_unstructured  that child: any Python with ``unstructured`` installed runs it
fidelity            the corpus through both, by format
search              an exact index in memory: cosine, BM25, fused as the query service does
retrieval           strategies of chunking on the golden set and on squad2-articles
figures             tables for people, one picture
"""
