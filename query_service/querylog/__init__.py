"""The query log: every query as one record on the topic ``queries``, and a local view of it that can be asked.

``log.QueryLog`` joins the parts, ``service.LoggedService`` lets every path into the query service pass through it.
"""
