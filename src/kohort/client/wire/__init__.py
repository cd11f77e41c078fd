"""Connections to brokers, and the way to the right broker.

async_connection      a connection for asyncio
blocking_connection   a connection that blocks
discovery             finds the coordinator of a group, for asyncio
exchange              versions, correlation ids, frames, SASL: a connection without its socket
routing               leaders, coordinators, retries, for blocking clients
"""
