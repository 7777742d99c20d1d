"""The emulated network: nodes, addresses, wires and the ports that shape each direction of a link."""
