"""A search stops after as many estimates as it is given, and more estimates find cuts that are no slower."""

from __future__ import annotations

import numpy as np

import gnnplace as gp
from gnnplace.baselines.pipelines.actions import Pipeline, devices_of_stages
from gnnplace.baselines.pipelines.one_f_one_b import one_f_one_b
from gnnplace.baselines.pipelines.rows import passes_over, rows_to_cut
from gnnplace.baselines.pipelines.stage_times import StageEstimate, link_table, row_times


def test_a_search_stops_after_its_estimates():
    problem = gp.problem("transformer-xl-2", cluster="k40-4", micro_batches=4)
    passes, table, memory = passes_over(problem), one_f_one_b(4, 4), problem.cluster.memory_bytes.astype(np.float64)
    row = next(row for row in rows_to_cut(passes) if not row.named)
    pipeline = Pipeline(problem.cluster.accelerators[devices_of_stages(table)], table)
    judge = StageEstimate(pipeline, row_times(passes, row.place), link_table(passes.one), memory)
    begin = np.array([0, 1, 2, 3, judge.length])
    found = [judge.climbed(begin, most=most) for most in (0, 1, 10, 10_000)]
    assert found[0][0].tolist() == begin.tolist() and (np.abs(found[1][0] - begin) > 0).sum() <= 3
    times = [time for _, time in found]
    assert times == sorted(times, reverse=True) and times[-1] < times[0] == judge.step_ns(begin)
