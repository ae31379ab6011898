"""Streams: what an edge between two fragments becomes.

Connections carry messages over one of several transports (`transport`); a Layout defines what lies
where in their bodies; ParameterWriter and ParameterReader hold the newest parameters.
"""
