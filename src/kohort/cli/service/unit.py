"""The unit of systemd that runs a server.

It lets the process write to its data directory and to nothing else. The server tells systemd when it is ready, and a
watchdog that its turns end (kohort/server/supervisor.py).
"""

from __future__ import annotations

import re
from pathlib import Path

from kohort.server.serve import BAD_SETTING, STORAGE_FAILED

OF_STATE = Path("/var/lib")
"""Where StateDirectory makes directories."""
HOMES = (Path("/home"), Path("/root"), Path("/run/user"))
"""What ProtectHome hides."""
OWN_FILES = 100
"""Open files besides connections (server/open_files.py)."""

UNIT = """\
# Save as /etc/systemd/system/kohort.service, then: systemctl daemon-reload && systemctl enable --now kohort
[Unit]
Description=kohort, a group coordinator and broker that speaks the Kafka protocol
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
User={user}
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
{directories}
UMask=0077
LimitNOFILE={files}
Restart=on-failure
RestartSec=1
# a bad setting; the data directory or its disk failed: a person must look
RestartPreventExitStatus={lasting}
# a long replay of the logs asks for more
TimeoutStartSec=90
TimeoutStopSec=30
WatchdogSec=30

NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
{homes}PrivateTmp=yes
PrivateDevices=yes
DevicePolicy=closed
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
ProcSubset=pid
RemoveIPC=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
KeyringMode=private
SystemCallArchitectures=native
SystemCallErrorNumber=EPERM
SystemCallFilter=@system-service
SystemCallFilter=~@privileged

[Install]
WantedBy=multi-user.target
"""


def unit(user: str, command: list[str], data_dir: Path, connections: int) -> str:
    """The text of the unit."""
    in_home = any(data_dir.is_relative_to(home) for home in HOMES)
    if data_dir != OF_STATE and data_dir.is_relative_to(OF_STATE):
        # systemd makes the directory, and gives it to the user.
        directories = f"StateDirectory={_word(str(data_dir.relative_to(OF_STATE)))}\nStateDirectoryMode=0700"
    else:
        directories = f"ReadWritePaths={_word(str(data_dir))}"
    return UNIT.format(
        user=user,
        command=" ".join(map(_argument, command)),
        directories=directories,
        files=max(65_536, connections + OWN_FILES),
        lasting=f"{BAD_SETTING} {STORAGE_FAILED}",
        homes="" if in_home else "ProtectHome=yes\n",
    )


def _word(text: str) -> str:
    """A word of a unit's list. Source: systemd.syntax(7), systemd.unit(5)."""
    text = text.replace("%", "%%")
    if re.fullmatch(r"[^\s\"'\\]+", text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _argument(text: str) -> str:
    """A word of a command line, in which $ begins a variable. Source: systemd.service(5)."""
    return _word(text.replace("$", "$$"))
