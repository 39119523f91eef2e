"""The two promises of `make test`: no test takes more than its CPU time, and no framework is imported."""

from __future__ import annotations

import os
import sys
import textwrap
import time

import pytest
from support import cpu_budget
from support.core_tests import HEAVY, is_slow

pytest_plugins = ["pytester"]


def clock(own: float, children: float, elapsed: float) -> os.times_result:
    return os.times_result((own, 0.0, children, 0.0, elapsed))


def test_a_child_that_began_earlier_counts_for_at_most_the_wall_time():
    assert cpu_budget.spent(clock(1.0, 5.0, 10.0), clock(2.5, 105.0, 12.0)) == 1.5 + 2.0
    assert cpu_budget.spent(clock(1.0, 5.0, 10.0), clock(2.5, 5.5, 12.0)) == 1.5 + 0.5


def test_a_test_over_the_budget_fails_unless_it_is_marked(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    pytester.makeini("[pytest]\nmarkers = slow: s")
    pytester.makepyfile(
        textwrap.dedent("""
        import time, pytest

        def burn():
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass

        def test_over():
            burn()

        @pytest.fixture
        def costly():
            burn()

        def test_over_in_its_fixture(costly):
            pass

        @pytest.mark.slow
        def test_marked():
            burn()

        def test_asleep():
            time.sleep(0.3)
        """)
    )
    with monkeypatch.context() as small:
        small.setattr(cpu_budget, "BUDGET_S", 0.02)
        result = pytester.runpytest_inprocess("-p", "support.cpu_budget", "-p", "no:cacheprovider", "--cpu-budget")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*a test that is not marked slow has 0.02 s*mark it @pytest.mark.slow*"])


def test_compilations_by_numba_do_not_count():
    timer = cpu_budget.CompileTimer()
    timer.on_start(None)
    timer.on_start(None)
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    timer.on_end(None)
    assert timer.seconds == 0.0
    timer.on_end(None)
    assert 0.05 <= timer.seconds < 0.5


def test_frameworks_are_no_part_of_core_and_their_tests_are_slow(pytestconfig: pytest.Config):
    tests = pytestconfig.rootpath / "tests"
    assert is_slow(tests / "frontends" / "onnx" / "test_onnx.py") and not is_slow(tests / "frontends" / "torch" / "test_torch_flops.py")
    if pytestconfig.getoption("--core"):
        assert not HEAVY & {name.partition(".")[0] for name in sys.modules}
        with pytest.raises(ModuleNotFoundError):
            __import__("tensorflow")
