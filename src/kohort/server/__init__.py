"""The server's process: sockets, the turn loop, signals.

server            `Server`: storage, broker, turn loop and listeners, started and stopped
serve             the process: signals, exit codes, the ready line
slow_requests     lines of the log about requests that took long, with their phases
supervisor        what systemd learns: ready, stopping, still replaying, turns end
stopped           one request to the broker of a stopped data directory
database/         a server whose data is in a database
backups/          backup, verification and restore of a data directory
migration/        migration of all data to a database, and back
turns             the turn loop: drives the schedule of turns, commits in the writer thread
memory/           the memory of the process, and the garbage collector
clock             the server's time, which tests replace
arrivals          accepts connections: their number, their rate, the quotas of addresses
listeners         binds and listens
security/         TLS and SASL
http/             /metrics, /livez and /readyz
connection        one TCP connection: bytes to frames, answers to bytes
connections       all connections: their limits, and the way to the turn loop and back
inflow            the bound on requests in memory
open_files        the limit of open files
outflow           the bound on answers in memory
reading           records that are not in memory, read in a thread
off_loop          assignors and pattern searches, in threads
assignor_plugins  assignors of other packages, by entry point
assignor_worker   the process that runs them
log               structured log lines
"""
