"""The planners of published pipeline schedules by name, each of a step of several micro-batches on one replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gnnplace.baselines.pipelines.gpipe import gpipe
from gnnplace.baselines.pipelines.graphpipe import graphpipe
from gnnplace.baselines.pipelines.interleaved import interleaved_1f1b
from gnnplace.baselines.pipelines.one_f_one_b import one_f_one_b
from gnnplace.baselines.pipelines.pipelined import pipelined
from gnnplace.baselines.pipelines.v_half import v_half
from gnnplace.baselines.pipelines.zb_h1 import zb_h1
from gnnplace.baselines.pipelines.zb_v import zb_v
from gnnplace.placement import Placement
from gnnplace.problems import Problem
from gnnplace.result import Evaluator

Plan = Callable[[Problem, Evaluator], Placement]
SCHEDULES: Mapping[str, Plan] = {
    "gpipe": partial(pipelined, rule=gpipe),
    "1f1b": partial(pipelined, rule=one_f_one_b),
    "graphpipe": graphpipe,
    "interleaved-1f1b": partial(pipelined, rule=interleaved_1f1b),
    "zb-h1": partial(pipelined, rule=zb_h1),
    "zb-v": partial(pipelined, rule=zb_v),
    "v-half": partial(pipelined, rule=v_half),
}
