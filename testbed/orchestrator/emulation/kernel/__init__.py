"""The kernel's interfaces: namespaces, netlink, traffic control, TCP settings, queue counters."""
