"""The `kohort` command. It uses the public protocol only, so it works with any Kafka cluster.

main            the entry point: parses a server's start and `--version` without typer, all else with it
plain           command lines that need no typer
commands        the table of commands, imported on use
start, serve    from the flags of `kohort serve` to a running server; the same for typer
demo, simulate  one command each
cluster         brokers; how many topics and groups
certificates    certificates for development
users           users with SCRAM credentials
quotas          what clients may use
health          whether a server or a cluster serves its clients
stable_offsets  what holds back readers of committed records
records/        `kohort produce` and `kohort consume`
topics/         `kohort topics`
groups/         `kohort groups`
configs/        `kohort configs`
service/        `kohort service`
transactions/   `kohort transactions`
acls/           `kohort acls`
metrics/        `kohort metrics`
console/        `kohort console`
backups/        `kohort backup`, `verify`, `restore` and `migrate`
pipelines/      `kohort pipeline`
gateway/        `kohort gateway`
conformance/    `kohort conformance`
jobs/           the file that spark-submit runs
connect         what commands share: the cluster's address, security, failures, completion
confirmation    the question before something is deleted or changed
places          partitions and instants as options name them
output          tables, JSON and YAML
yaml_text       a JSON document as YAML
option_objects  the commands' typer app; dataclasses as a command's options; how a command fails
interrupt       Ctrl-C and SIGTERM
"""
