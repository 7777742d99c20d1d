"""Mininet nodes of ours: routers that forward, and worker nodes whose processes run in a container.

Mininet gives every node a shell, which costs some 9 ms and two processes. Ours is a namespace alone; its shell starts
when somebody first asks for it (`cmd`, `pid`, ...), so everything Mininet does with a node still works.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from testbed.core.errors import RunError
from testbed.orchestrator.emulation.kernel.namespaces import Namespace
from testbed.orchestrator.emulation.kernel.netlink import RouteSocket
from testbed.orchestrator.emulation.kernel.tcp import OPTIONAL_SYSCTLS
from testbed.orchestrator.emulation.links.mininet_classes import Node


class NamespaceNode(Node):  # type: ignore[misc]
    """A Mininet node that is a namespace until its shell is wanted: a new one, if none is given."""

    def __init__(self, name: str, namespace: Namespace | None = None, **params: Any) -> None:
        self.namespace = namespace or Namespace(name)
        self._shell: Any = None
        self._shell_pid: Any = None
        self._is_starting = True  # Mininet's constructor wants to start the shell
        super().__init__(name, **params)
        self._is_starting = False

    @functools.cached_property
    def route_socket(self) -> RouteSocket:
        return RouteSocket(self.namespace.path)

    @property
    def shell(self) -> Any:
        self._need_shell()
        return self._shell

    @shell.setter
    def shell(self, value: Any) -> None:
        self._shell = value

    @property
    def pid(self) -> Any:
        self._need_shell()
        return self._shell_pid

    @pid.setter
    def pid(self, value: Any) -> None:
        self._shell_pid = value

    def _need_shell(self) -> None:
        if self._shell is None and not self._is_starting and self.namespace.descriptor >= 0:
            self._is_starting = True
            self.inNamespace = False  # the namespace is there; the shell must not unshare another
            try:
                super().startShell()
            finally:
                self.inNamespace = True
                self._is_starting = False

    def startShell(self, mnopts: str | None = None) -> None:
        """Later, by `_need_shell`."""

    def _popen(self, cmd: list[str], **params: Any) -> Any:
        if self._is_starting:
            cmd = ["nsenter", f"--net={self.namespace.path}", "--", *cmd]
        return super()._popen(cmd, **params)

    def terminate(self) -> None:
        self._is_starting = True  # what is not there is not started in order to be ended
        if "route_socket" in self.__dict__:
            self.route_socket.close()
        super().terminate()
        self.namespace.close()


class Router(NamespaceNode):
    """A namespace that forwards: a region's router, or the middle of a WAN link."""


class WorkerNode(NamespaceNode):
    """A namespace for one worker. Its container joins it (`emulation.container`)."""


def set_sysctls(node: NamespaceNode, values: Mapping[str, str]) -> dict[str, str]:
    """Set and read back; return what is in force.

    Raises:
        RunError: the kernel keeps another value.
    """

    def work() -> dict[str, str]:
        found = {}
        for key, value in values.items():
            path = Path("/proc/sys", *key.split("."))
            if key in OPTIONAL_SYSCTLS and not path.exists():
                continue
            try:
                path.write_text(value)
                found[key] = " ".join(path.read_text().split())
            except OSError as error:
                raise RunError(f"node {node.name}: asked {key}={value}: {error}") from error
        return found

    found = node.namespace.call(work)
    for key, kept in found.items():
        if kept != values[key]:
            raise RunError(f"node {node.name}: asked {key}={values[key]}, kernel keeps {kept}")
    return found
