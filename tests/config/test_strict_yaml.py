"""YAML as configurations have it: what could take memory for ever, or would mean something else than it says, is refused in one line."""

import math

import pytest
from support.slow import slow

from gnnplace.config.files import from_document, read_config, shipped
from gnnplace.config.strict_yaml import MAX_BYTES, loads, read
from gnnplace.knobs import above, at_least, finite

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]\n" for k in range(1, 10))
REFUSED = {
    "a bomb of aliases": (BOMB, "more than 10000 values, those that aliases stand for included line 4"),
    "a chain of aliases": ("a0: &a0 [x]\n" + "".join(f"a{k}: &a{k} [*a{k - 1}]\n" for k in range(1, 40)), "nested more than 20 deep"),
    "a map in itself": ("a: &a {b: *a}", "an alias stands for what it is in"),
    "brackets": ("a: " + "[" * 100_000, "nested more than 20 deep line 1"),
    "dashes": ("a:\n  " + "- " * 5000, "nested more than 20 deep"),
    "many values": ("a: [" + "1," * 10_001 + "]", "more than 10000 values"),
    "a repeated key": ("a: 1\nb: 2\na: 3", "'a' stands there twice line 3, column 1"),
    "a key that is a number": ("1: 2", "a key is due that is text"),
    "a key that is a list": ("[a]: 2", "a key is due that is text"),
    "a date that is none": ("a: 2001-99-99", "month must be in 1..12"),
    "a number of 5,000 digits": ("a: " + "9" * 5000, "4300 digits"),
    "a tag of Python's": ("a: !!python/object/apply:os.system [id]", "could not determine a constructor for the tag"),
    "bytes": ("a: !!binary aGFsbG8=", "could not determine a constructor for the tag"),
    "a set": ("a: !!set {a, b}", "could not determine a constructor for the tag"),
    "no map": ("[1, 2]", "a list: a map of knobs is due"),
    "two documents": ("a: 1\n---\nb: 2", "expected a single document"),
    "an unknown alias": ("a: *b", "found undefined alias"),
    "a control character": ("a: \x00", "special characters are not allowed"),
}


@pytest.mark.parametrize("name", [slow(name) if name in ("many values", "brackets") else name for name in REFUSED])
def test_what_is_refused_is_refused_in_one_line(name):
    content, words = REFUSED[name]
    with pytest.raises(ValueError) as error:
        loads(content.encode())
    assert words in str(error.value) and "\n" not in str(error.value) and len(str(error.value)) < 1000


def test_files_have_a_largest_size_and_are_regular(tmp_path):
    (tmp_path / "large.yaml").write_text("#" * (MAX_BYTES + 1))
    for path, words in ((tmp_path / "large.yaml", "longer than"), ("/dev/zero", "is no regular file"), (tmp_path / "none", "No such file")):
        with pytest.raises(ValueError, match=words):
            read(path)


def test_aliases_of_little_are_read():
    assert loads(b"a: &a {x: [1]}\nb: *a\nc: {<<: *a, y: 2}") == {"a": {"x": [1]}, "b": {"x": [1]}, "c": {"x": [1], "y": 2}}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_knobs_are_finite(value):
    for check in (lambda: at_least(0, "a.", b=value), lambda: above(0, "a.", b=value), lambda: finite("a.", b=value)):
        with pytest.raises(ValueError, match=r"a\.b: -?(nan|inf) is not finite"):
            check()


KNOBS = {
    "training.reward.invalid": "-.inf", "training.credit.initial": ".nan", "training.optimizer.lr": ".inf",
    "training.placements": "10000000",
    "training.threads": "1000000", "policy.width": "60000", "policy.encoder_rounds": "10000000", "seed": str(2**70),
    "training.updates": str(10**12), "measured.limit_s": ".inf",
}  # fmt: skip


@pytest.mark.parametrize("knob", [knob if knob in ("policy.width", "training.reward.invalid") else slow(knob) for knob in KNOBS])
def test_a_knob_that_would_hang_is_refused(knob):
    with pytest.raises(ValueError, match=rf"command line: .*{knob.rpartition('.')[2]}: \S+ is (not finite|not between|above)"):
        read_config(shipped(), [f"--{knob}={KNOBS[knob]}"])


@pytest.mark.slow
def test_a_deep_value_of_a_command_line_is_refused():
    for words in (["--problems=" + "[" * 50_000], ["--problems", "{a: " * 50_000]):
        with pytest.raises(ValueError, match=r"command line: '.*: nested more than 20 deep"):
            read_config(shipped(), words)
    with pytest.raises(ValueError, match=r"somewhere: problems: .*: input should be a valid list"):
        from_document({"policy": {"kind": "hierarchical"}, "problems": "[" * 50_000}, "somewhere")
    with pytest.raises(ValueError, match=r"somewhere: policy\.kind"):
        from_document({"policy": {"kind": None}}, "somewhere")
