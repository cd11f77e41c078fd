"""Threads and event loops side by side.

callback        call an application's callback from an event loop, with time limits
loop_thread     an event loop in a thread, for objects that other threads call
program         run an asyncio program until SIGTERM
worker_thread   a thread that runs blocking calls for an event loop
"""
