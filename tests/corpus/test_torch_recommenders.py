"""The recommenders hold the parameters of their papers and compute their formulas."""

from __future__ import annotations

import pytest
import torch
from support.torch_checks import PRODUCTS, counted_products, flops_of, parameter_bytes
from torch import nn

from datasets.build import dcn, deepfm, din, neumf, sasrec, wide_and_deep
from datasets.build_torch import workload
from gnnplace.corpus import manifest

DCN_NETWORK = 3_493_404
WIDE_DEEP = 1249 * 1024 + 1025 * 512 + 513 * 256 + 257
SASREC_BLOCK = 2 * 100 + 5 * 51 * 50
PARAMETERS = {
    "dcn-v2": sum(deepfm.ROWS[13:]) * 39 + DCN_NETWORK,
    "wide-and-deep": 1_086_810 * 32 + 15 * 1_000_000 + WIDE_DEEP + 1,
    "neumf": 31_832_577,
    "sasrec": 3417 * 50 + 200 * 50 + 2 * SASREC_BLOCK + 100,
}
"""NeuMF's are those of the MLPerf benchmark, DCN-V2's network has the paper's 3.5 M; the others follow from their sizes."""


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    assert parameter_bytes(name) == 12 * PARAMETERS[name]


def test_interest_is_trained_without_an_optimisers_state() -> None:
    network = (512 + 1) * 80 + (80 + 1) * 40 + 41 + (384 + 1) * 80 + (80 + 1) * 40 + 41 + 2 * (80 + 40)
    assert parameter_bytes("din") == 4 * ((63_001 + 801) * 64 + network)


@pytest.mark.parametrize("name", [*PARAMETERS, "two-tower-inference", "deepfm-inference"])
def test_products_count_as_torch_counts_them(name: str) -> None:
    assert flops_of(manifest.graph(name), *PRODUCTS) == counted_products(name)


def test_the_products_of_interest() -> None:
    """Forward and two gradients of each; the sum over the history is a product of its own."""
    rows, layers = 1024 * 100, 512 * 80 + 80 * 40 + 40
    forward = rows * (layers + 128) + 1024 * (384 * 80 + 80 * 40 + 40)
    assert flops_of(manifest.graph("din"), *PRODUCTS) == 3 * 2 * forward


def test_tables_of_interest_change_by_the_rows_looked_up() -> None:
    graph = manifest.graph("din")
    assert not graph.canonical_kind.among(["embedding_grad"]).any()
    updates = graph.kind.among(["aten.index_add_"]) & graph.phase.among(["update"])
    assert sorted(graph.flops[updates].tolist()) == [1024 * 64] * 2 + [1024 * 100 * 64] * 2


def test_a_cross_layer_multiplies_every_two_numbers() -> None:
    torch.manual_seed(0)
    layer, first, crossed = dcn.Cross(3), torch.randn(2, 3), torch.randn(2, 3)
    weight, bias = layer.linear.weight, layer.linear.bias
    expected = [first[:, i] * (sum(weight[i, j] * crossed[:, j] for j in range(3)) + bias[i]) + crossed[:, i] for i in range(3)]
    torch.testing.assert_close(layer(first, crossed), torch.stack(expected, dim=1))


def test_the_deep_part_of_dcn_sees_the_vector_before_it_is_crossed() -> None:
    step = workload("dcn-v2")
    model, (dense, ids, _), seen = step.module, [part[:4] for part in step.inputs], []
    model.deep.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    model.cross[0].register_forward_pre_hook(lambda _, inputs: seen.extend(inputs))
    model(dense, ids)
    expected = torch.cat([dense, *(model.tables[field](ids[:, field]) for field in range(26))], dim=1)
    assert len(seen) == 3 and all(torch.equal(vector, expected) for vector in seen)


def test_the_wide_part_adds_one_weight_of_each_cross() -> None:
    torch.manual_seed(0)
    wide, crossed = wide_and_deep.Wide(), torch.randint(wide_and_deep.CROSS_ROWS, (3, wide_and_deep.CROSSES))
    expected = [sum(wide.weights[i].weight[crossed[b, i], 0] for i in range(wide_and_deep.CROSSES)) for b in range(3)]
    torch.testing.assert_close(wide(crossed), torch.stack(expected))


def test_wide_and_deep_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_and_deep, "ROWS", (3, 4))
    monkeypatch.setattr(wide_and_deep, "CROSS_ROWS", 5)
    torch.manual_seed(0)
    model, ids, crossed = wide_and_deep.WideAndDeep(), torch.tensor([[2, 3], [0, 1]]), torch.randint(5, (2, wide_and_deep.CROSSES))
    nn.init.normal_(model.bias)
    deep = model.deep
    hidden = torch.cat([deep.tables[field].weight[ids[:, field]] for field in range(2)], dim=1)
    for layer in deep.layers:
        hidden = (hidden @ layer[0].weight.t() + layer[0].bias).clamp(min=0)
    torch.testing.assert_close(model(ids, crossed), deep.out(hidden)[:, 0] + model.wide(crossed) + model.bias)


def test_neumf_multiplies_and_joins() -> None:
    torch.manual_seed(0)
    model, users, items = neumf.NeuMF(neumf.Sizes(5, 7, 3, (8, 6, 2))), torch.tensor([4, 0]), torch.tensor([1, 6])
    ours, other = model.factorisation, model.perceptron
    hidden = torch.cat([other.user.weight[users], other.item.weight[items]], dim=1)
    for layer in other.layers:
        hidden = (hidden @ layer[0].weight.t() + layer[0].bias).clamp(min=0)
    both = torch.cat([ours.user.weight[users] * ours.item.weight[items], hidden], dim=1)
    torch.testing.assert_close(model(users, items), (both @ model.out.weight.t() + model.out.bias)[:, 0])


def test_dice_keeps_by_probability_and_weighs_the_rest() -> None:
    torch.manual_seed(0)
    dice, hidden = din.Dice(3), torch.randn(50, 3)
    nn.init.normal_(dice.slope)
    kept = torch.sigmoid((hidden - hidden.mean(0)) / (hidden.var(0, correction=0) + din.EPSILON).sqrt())
    torch.testing.assert_close(dice(hidden), kept * hidden + (1 - kept) * dice.slope * hidden)


def test_what_is_no_history_does_not_count() -> None:
    torch.manual_seed(0)
    interest = din.Activation(din.Sizes(width=2, hidden=(4, 3))).eval()
    candidate, history, valid = torch.randn(2, 4), torch.randn(2, 5, 4), torch.tensor([[1.0, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    found = interest(candidate, history, valid)
    pairs = [torch.cat([good, candidate[0], good - candidate[0], good * candidate[0]]) for good in history[0, :3]]
    expected = sum(interest.weigh(pair[None])[0] * good for pair, good in zip(pairs, history[0], strict=False))
    torch.testing.assert_close(found[0], expected)
    history[0, 3:] = 7.0
    torch.testing.assert_close(interest(candidate, history, valid)[0], expected)


def test_sequences_are_read_by_attention_to_the_past() -> None:
    torch.manual_seed(0)
    layer, hidden = sasrec.Attention(6, 0.0), torch.randn(2, 5, 6)
    published = nn.MultiheadAttention(6, 1, batch_first=True)
    parts = (layer.query, layer.key, layer.value)
    published.in_proj_weight.data = torch.cat([part.weight for part in parts])
    published.in_proj_bias.data = torch.cat([part.bias for part in parts])
    published.out_proj.weight.data, published.out_proj.bias.data = torch.eye(6), torch.zeros(6)
    seen, later = layer.norm(hidden), torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = seen + published(seen, hidden, hidden, attn_mask=later)[0]
    torch.testing.assert_close(layer(hidden), expected)


def test_a_sequence_passes_the_blocks_and_places_without_an_item_stay_0() -> None:
    torch.manual_seed(0)
    model, seen = sasrec.SASRec(sasrec.Sizes(items=9, length=4, width=6)).eval(), torch.tensor([[0, 0, 3, 5]])
    nn.init.normal_(model.position)
    valid = torch.tensor([0.0, 0, 1, 1])[:, None]
    hidden = (model.items.weight[seen] * 6**0.5 + model.position) * valid
    for attention, forward in model.blocks:
        normal = forward.norm(attention(hidden))
        hidden = (normal + forward.out(forward.inner(normal).clamp(min=0))) * valid
    torch.testing.assert_close(model.encoded(seen), model.norm(hidden))


def test_films_that_are_none_do_not_count() -> None:
    torch.manual_seed(0)
    model = sasrec.SASRec(sasrec.Sizes(items=9, length=4, width=6)).eval()
    seen, following, others = torch.tensor([[0, 0, 3, 5]]), torch.tensor([[0, 0, 5, 8]]), torch.tensor([[1, 2, 7, 4]])
    hidden, table = model.encoded(seen)[0], model.items.weight
    yes, no = (torch.stack([hidden[i] @ table[items[0, i]] for i in (2, 3)]) for items in (following, others))
    expected = -(torch.sigmoid(yes).log() + (1 - torch.sigmoid(no)).log()).mean()
    torch.testing.assert_close(model(seen, following, others), expected)
