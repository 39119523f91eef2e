"""Hostile configurations: `gnnplace train --config` refuses each before a folder is made."""

from __future__ import annotations

from collections.abc import Iterator

from tests.hostile.command_case import HostileFile

START = "policy: {kind: unit-placer}\nproblems: [[dlrm, k40-2]]\ntracking: none\n"
BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 10))
TEXTS = {
    "a bomb of aliases": (BOMB, "more than 10000 values"),
    "brackets": ("a: " + "[" * 100_000, "nested more than 20"),
    "braces": ("a: " + "{a: " * 40_000, "nested more than 20"),
    "a map in itself": ("a: &a {b: *a}", "alias stands for what it is in"),
    "dashes": ("a:\n  " + "- " * 50_000, "nested more than 20"),
    "question marks": ("? " * 50_000, "nested more than 20"),
    "code": ("a: !!python/object/apply:os.system [touch executed]", "tag"),
    "a module": ("a: !!python/module:antigravity ''", "tag"),
    "code of a name": ("a: !!python/name:os.system", "tag"),
    "a list": ("[1, 2]", "a map of knobs"),
    "nothing": ("", "a map of knobs"),
    "half a megabyte": ("# " + "x" * 2**19, "longer than"),
    "zeros": ("\0" * 1000, "special characters"),
    "two documents": (START + "---\n" + START, "single document"),
    "a key twice": (START + "name: a\nname: b\n", "'name' stands there twice"),
    "a key that is a list": ("[a]: 1", "a key is due that is text"),
    "a date that is none": (START + "name: 2001-99-99", "month"),
    "5,000 digits": (START + "seed: " + "9" * 5000, "4300 digits"),
    "an unknown knob": (START + "trainig: {}\n", "'trainig' is no knob"),
    "an evil knob": (START + '"\\e[2J": 1\n', "is no knob"),
    "a binary": (START + "name: !!binary aGFsbG8=", "binary"),
    "a set": (START + "name: !!set {a, b}", "set"),
    "no problems": ("policy: {kind: unit-placer}\nproblems: []", "problems"),
    "a group that is a list": (START + "training: []", "training: a list: a map of knobs"),
    "a group within one": (START + "training: {optimizer: [1]}", "training.optimizer: a list: a map"),
    "no policy": ("seed: 1", "policy.kind: None"),
    "an unknown policy": ("policy: {kind: evil}", "policy.kind: 'evil'"),
    "a policy in a list": ("policy: [unit-placer]", "policy.kind"),
    "a text that nests": (START + "costs: '" + "[" * 50_000 + "'", "costs: .* valid list"),
    "no UTF-8": (START + "name: ", "not UTF-8"),
    "a folder elsewhere": (START + "name: ../../x", "names a folder"),
    "an unknown graph": (START.replace("dlrm", "nets/none.json"), "none.json"),
    "a problem of three": ("policy: {kind: unit-placer}\nproblems: [[a, b, c]]", "problems"),
    "an unknown cluster": (START.replace("k40-2", '"\\e[2J"'), "x1b"),
    "an unknown flag": (START + "trainer: {evil: 1}", "'evil' is no flag"),
    "a plugin": (START + "trainer: {plugins: os.system}", "trainer.plugins"),
    "an init that is no file": (START + "init: /dev/zero", "/dev/zero"),
    "an init that is missing": (START + "init: none", "there is no checkpoint"),
}
KNOBS = {
    "policy.width": ("60000", "0", "1.5", "text", "[]", "10000000000000"),
    "policy.rounds": ("10000000", "-1"),
    "seed": ("-1", "18446744073709551616", "text"),
    "training.updates": ("-1", "1000000000000", ".nan"),
    "training.placements": ("0", "10000000"),
    "training.groupings": ("0", "10000000"),
    "training.threads": ("-1", "1000000"),
    "training.optimizer.lr": (".nan", ".inf", "-.inf", "0", "text"),
    "training.reward.invalid": (".nan", "-.inf"),
    "training.reward.overflow": (".nan", ".inf"),
    "training.credit.initial": (".nan", ".inf"),
    "training.credit.gamma": (".nan", "2"),
    "training.exploration.noise": (".nan", ".inf", "-1"),
    "training.exploration.entropy_start": (".nan", ".inf"),
    "training.problems_per_update": ("10000000",),
    "training.moves.lists": ("10000000",),
    "training.moves.power": (".nan", ".inf"),
    "measured.limit_s": (".nan", ".inf", "0"),
    "corpus.synthetic": ("10000000",),
    "algorithm.self_imitation": (".nan", ".inf"),
    "evaluate": ("guessed", "[]"),
    "tracking": ("everywhere",),
    "runs": ("[]", "{}"),
    "dims": ("7", "[[a]]"),
}

# What the files name; and a run begins where its graphs are read: its folders are removed by their names
OPENED = "/dev/zero", "nets/none.json", "runs", "run-1", "placements"


def cases() -> Iterator[HostileFile]:
    """Texts that are no configuration, and knobs out of their range."""
    arguments = ("train", "--config", "run.yaml", "-q")
    for name, (text, words) in TEXTS.items():
        content = text.encode() + (b"\xff" if name == "no UTF-8" else b"")
        yield HostileFile("YAML", name, arguments, {"run.yaml": content}, words, opened=OPENED)
    for knob, values in KNOBS.items():
        for value in values:
            group, _, last = knob.rpartition(".")
            text = START
            if group == "policy":
                text = START.replace("unit-placer}", f"unit-placer, {last}: {value}}}")
            elif group:
                first, *rest = group.split(".")
                text += f"{first}: " + "".join(f"{{{part}: " for part in rest) + f"{{{last}: {value}}}" + "}" * len(rest) + "\n"
            else:
                text = text.replace("tracking: none\n", "") + f"{last}: {value}\n"
            yield HostileFile("YAML", f"{knob} is {value}", arguments, {"run.yaml": text.encode()}, last)
