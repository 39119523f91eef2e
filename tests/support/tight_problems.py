"""Random problems of few placements whose memories are too small for everything: what proved bounds and programs are held against."""

from random import Random

from support.random_problems import Case

from experiments.random_documents import KINDS, random_cluster, random_graph, receive_apart

MOST_OPS = {1: 8, 2: 8, 3: 6, 4: 5}  # by devices


def tight_case(seed):
    """A random case of few ops whose every placement can be tried, on devices that hold about half of what there is to hold."""
    random = Random(seed)
    return _tight(random, random_cluster(random))


def crowded_case(seed):
    """The same with groups and rules of legality everywhere, more streams, and clusters of which half are of equal devices or links."""
    random = Random(f"crowded {seed}")
    cluster = random_cluster(random)
    devices, links = cluster["devices"], cluster["links"]
    if random.random() < 0.5:
        cluster["devices"] = [devices[0] | {"name": device["name"], "streams": devices[0]["streams"]} for device in devices]
    if random.random() < 0.5:
        cluster["links"] = [_as_link(links[0], link) for link in links]
    case = _tight(random, cluster)
    share, named = random.choice([0.0, 0.2, 0.5]), random.random() < 0.4
    for fields in case.graph["ops"]:
        if random.random() < share:
            fields["colocation"] = random.choice(["a", "b"])
        if random.random() < share:
            fields["allowed"] = random.sample(KINDS, 2)
        if "time_ns" in fields and not named:
            fields["time_ns"] = {key: time for key, time in fields["time_ns"].items() if key in KINDS}
    return case


def _as_link(pattern, link):
    """A link of another's rates, whose channels are its own devices where the other's are."""
    found = {key: value for key, value in pattern.items() if key not in ("channel", "receive_channel")} | {
        "src": link["src"],
        "dst": link["dst"],
    }
    for field, end in (("channel", "src"), ("receive_channel", "dst")):
        if field in pattern:
            found[field] = link[end] if pattern[field] == pattern[end] else pattern[field]
    return found


def _tight(random, cluster):
    names = [device["name"] for device in cluster["devices"]]
    graph = random_graph(random, random.randint(1, MOST_OPS[len(names)]), names)
    for fields in graph["ops"]:
        fields["persistent_bytes"] = random.choice([0, 40, 100, 100])
    held = sum(fields["persistent_bytes"] for fields in graph["ops"])
    memory = [int(held * random.choice([0.4, 0.6, 0.8, 2])) + random.choice([60, 120]) for _ in names]
    same = len({frozenset((key, str(value)) for key, value in device.items() if key != "name") for device in cluster["devices"]}) == 1
    for device, size in zip(cluster["devices"], memory, strict=True):
        device["memory_bytes"] = memory[0] if same else size
    receive_apart(random, cluster)
    return Case(graph, cluster, [], "fifo", None)
