"""Events of a run: one frozen dataclass for each kind of line in `events.jsonl`.

Every event has `t_s`, emulated seconds since step 1 began (negative before it), and `event`, its name. Importing this
package loads every kind.
"""

from testbed.core.record.events import (
    base,
    gossip,
    kfac,
    kv_transfer,
    machine,
    network,
    note,
    pipeline,
    run,
    server,
    training,
)

KINDS = base.Event.kinds
"""Every class of events by its name."""

__all__ = ["gossip", "kfac", "kv_transfer", "machine", "network", "note", "pipeline", "run", "server", "training"]
