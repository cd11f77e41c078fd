"""The HTTP listener: /metrics, /livez and /readyz.

door           the listener's connections: their number, their limits
connection     one connection: one request, one answer
request        bytes to a request, and what is refused
pages          which page answers, and with what
between_turns  long work on the broker's state, in pieces, between turns
scraper        one scrape at a time, shared by those that ask for it meanwhile
numbers        what the server knows of itself: connections, memory, files
health         the checks of /livez and /readyz
"""
