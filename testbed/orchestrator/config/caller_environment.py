"""Environment of whoever called, as a user's script gets it: passed on, except for the names in LEFT_OUT.

What was passed on is part of the run, as arguments are. It is recorded by name and value; of values that look like
secrets a digest is recorded.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from collections.abc import Mapping

LEFT_OUT = {
    "set for the node itself": (
        *("PATH", "HOME", "USER", "LOGNAME", "USERNAME", "SHELL", "TMPDIR", "HOSTNAME", "VIRTUAL_ENV", "LONGHAUL_*"),
        *("PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONPYCACHEPREFIX", "PYTHONUNBUFFERED"),
        *("PYTHONDONTWRITEBYTECODE", "GLOO_SOCKET_IFNAME", "XTABLES_LOCKFILE"),
    ),
    "of a launcher": (
        *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK"),
        *("ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_*", "SLURM_*", "SLURMD_*"),
        *("SBATCH_*", "PMI_*", "PMIX_*", "OMPI_*", "PBS_*", "LSB_*", "RAY_*", "KUBERNETES_*"),
    ),
    "of the terminal, the session and the desktop": (
        *("TERM", "TERM_*", "TERMINFO", "TERMCAP", "COLORTERM", "COLORFGBG", "COLUMNS", "LINES", "LS_COLORS"),
        *("LSCOLORS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PS[0-4]", "PROMPT_COMMAND"),
        *("HISTFILE", "HISTSIZE", "HISTFILESIZE", "HISTCONTROL", "HISTIGNORE", "HISTTIMEFORMAT", "PWD", "OLDPWD"),
        *("SHLVL", "_", "BASH_*", "BASHOPTS", "ZSH", "ZSH_*", "ZDOTDIR", "OSTYPE", "HOSTTYPE", "MACHTYPE", "SSH_*"),
        *("XDG_*", "DBUS_*", "DISPLAY", "WAYLAND_*", "XAUTHORITY", "WINDOWID", "DESKTOP_SESSION", "SESSION_MANAGER"),
        *("GDM_*", "GDMSESSION", "GNOME_*", "GTK_*", "KDE_*", "QT_*", "TMUX", "TMUX_PANE", "STY", "SCREENDIR"),
        *("VTE_VERSION", "VSCODE_*", "ITERM_*", "KITTY_*", "ALACRITTY_*", "WEZTERM_*", "WT_SESSION", "WT_PROFILE_ID"),
        *("WSL_*", "WSLENV", "GPG_TTY", "GPG_AGENT_INFO", "EDITOR", "VISUAL", "PAGER", "LESS", "LESSOPEN", "LESSCLOSE"),
        *("MANPATH", "MANPAGER", "MAIL", "DEBIAN_FRONTEND", "INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_*"),
        *("NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "MEMORY_PRESSURE_*", "CREDENTIALS_DIRECTORY"),
    ),
    "of what started Longhaul": (
        *("SUDO_*", "DOAS_*", "MAKEFLAGS", "MAKELEVEL", "MAKEFILES", "MAKEOVERRIDES", "MAKE_TERMOUT", "MAKE_TERMERR"),
        *("MFLAGS", "GNUMAKEFLAGS", "PYTEST_*", "COVERAGE_*", "COV_CORE_*", "CI", "GITHUB_*", "RUNNER_*"),
        "DOCKER_HOST",
    ),
}
"""Patterns of the names that no script gets, by why."""
_PATTERN = re.compile("|".join(fnmatch.translate(one) for names in LEFT_OUT.values() for one in names))
_SECRET_NAME = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|(^|_)(\w*KEYS?|PASS|PWD|AUTH|DSN)(_|$)", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"://[^/\s]*:[^/\s]*@")
"""User and password in an address."""
MAX_RECORDED = 4096
"""Characters of a value that is recorded as it is."""


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what a script gets of `environment`, sorted by name."""
    # make exports the variables on its own command line
    of_make = set(re.findall(r"(?:^|(?<!\\)\s)(\w+)=", environment.get("MAKEFLAGS", "")))
    return {
        name: value
        for name, value in sorted(environment.items())
        if not _PATTERN.match(name) and name not in of_make and re.fullmatch(r"[^=\0]+", name)
    }


def recorded(passed: Mapping[str, str]) -> dict[str, str]:
    """Return what the record holds of variables that were passed on: values, or `sha256:` and the start of a digest."""
    return {name: _digest(value) if _is_hidden(name, value) else value for name, value in passed.items()}


def module_path(environment: Mapping[str, str], clone: str) -> list[str]:
    """Return the folders of PYTHONPATH without the clone, which Longhaul puts there itself; absolute, each once."""
    named = [os.path.abspath(place) for place in environment.get("PYTHONPATH", "").split(os.pathsep) if place]
    return [place for place in dict.fromkeys(named) if place != clone]


def _is_hidden(name: str, value: str) -> bool:
    if _SECRET_NAME.search(name) or _SECRET_VALUE.search(value) or len(value) > MAX_RECORDED:
        return True
    return not value.isprintable() and "\udc80" <= max(value) <= "\udcff"  # bytes that are no text


def _digest(value: str) -> str:
    return f"sha256:{hashlib.sha256(value.encode(errors='surrogateescape')).hexdigest()[:16]}"
