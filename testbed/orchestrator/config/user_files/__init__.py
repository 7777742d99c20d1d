"""The one reader of YAML files that users write: topologies, events, sweeps, settings of plug-ins.

    document = read_yaml(Path("net.yaml"), "topo=net.yaml")     # InputError: a line a fault: file, line, cause, remedy
    values = document.plain(texts=("links.*.a", "regions.*"))   # dict, list, str, int, float, bool, None
    document.at("links", 0, "rtt")                              # "topo=net.yaml, line 3", to begin a fault with
    document.located(faults, "topo")                            # the same for faults such as "topo.links[0].rtt: ..."

Values follow the core schema of YAML 1.2. Keys are text as written, and so are the values that `texts` names: `no`,
`010` and `~` are names there. Text files of other formats: `testbed.core.user_files`.
"""
