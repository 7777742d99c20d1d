#!/bin/sh
# own.sh PATH...: files made under sudo belong to the user who called it. Does nothing without sudo.
set -eu
[ "$(id -u)" = 0 ] && [ -n "${SUDO_UID:-}" ] || exit 0
for path; do
    [ ! -e "$path" ] || chown -R --no-dereference "$SUDO_UID:${SUDO_GID:-$SUDO_UID}" "$path"
done
