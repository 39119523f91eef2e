"""The Placer: its bound, what its slots pair, and that the fused pass is the stepwise one."""

import math

import pytest
import torch

from gnnplace.policies.placing.placer import Seq2Seq


def placer(devices=3, width=16, **bounds):
    torch.manual_seed(0)
    return Seq2Seq(7, devices, width=width, **bounds)


def stepwise(net, encoded, samples, generator=None):
    """Sampled devices and the logits that each was drawn from."""
    seen = []

    def decide(step, logits):
        seen.append(logits)
        return torch.multinomial(logits.detach().softmax(-1), 1, generator=generator)[:, 0]

    chosen = net.write(encoded, samples, decide)
    return chosen, torch.stack(seen, 1)


@pytest.mark.parametrize(("devices", "most"), [(2, 0.99995), (3, 0.99991), (5, 0.99982), (9, 0.99964)])
def test_the_most_probable_device_under_the_papers_bound(devices, most):
    net = placer(devices)
    best, others = net.squash(torch.tensor(1e9)), net.squash(torch.tensor(-1e9))
    probability = best.exp() / (best.exp() + (devices - 1) * others.exp())
    assert float(probability) == pytest.approx(most, abs=1e-5)


def test_logits_are_bounded_by_c_and_nearly_l_c_over_t_where_small():
    net = placer(bound=2.0, temperature=4.0)
    assert net.squash(torch.tensor([1e6, -1e6])).tolist() == [2, -2]
    assert float(net.squash(torch.tensor(0.01))) == pytest.approx(0.01 * 2 / 4, rel=1e-3)


@pytest.mark.parametrize(("leading", "samples", "groups"), [(1, 4, 6), (2, 6, 5), (3, 3, 1), (1, 1, 2)])
def test_the_fused_pass_scores_as_the_steps_did(leading, samples, groups):
    net = placer()
    encoded = net.encode(torch.randn(leading, groups, 7))
    chosen, logits = stepwise(net, encoded, samples, torch.Generator().manual_seed(1))
    assert chosen.shape == (samples, groups)
    torch.testing.assert_close(net.score(encoded, chosen), logits, rtol=1e-5, atol=1e-6)


def test_both_passes_have_the_same_gradients():
    net = placer()
    groups = torch.randn(2, 5, 7)
    chosen, _ = stepwise(net, net.encode(groups), 4)
    gradients = []
    for fused in (True, False):
        net.zero_grad()
        steps = []
        encoded = net.encode(groups)
        if not fused:
            net.write(encoded, 4, lambda step, logits, steps=steps: (steps.append(logits), chosen[:, step])[1])
        logits = net.score(encoded, chosen) if fused else torch.stack(steps, 1)
        logits.log_softmax(-1).gather(-1, chosen.unsqueeze(-1)).sum().backward()
        gradients.append([parameter.grad.clone() for parameter in net.parameters()])
    for fused, steps in zip(*gradients, strict=True):
        torch.testing.assert_close(fused, steps, rtol=1e-4, atol=1e-5)


def test_samples_of_one_grouping_share_its_encoding():
    net = placer()
    groups = torch.randn(2, 4, 7)
    chosen = torch.randint(3, (6, 4))
    together = net.score(net.encode(groups), chosen)
    apart = [net.score(net.encode(groups[j // 3 : j // 3 + 1]), chosen[j : j + 1]) for j in range(6)]
    torch.testing.assert_close(together, torch.cat(apart), rtol=1e-5, atol=1e-6)


def test_a_decision_depends_on_the_ones_before_it_and_on_all_groups():
    net = placer()
    groups, chosen = torch.randn(1, 4, 7), torch.tensor([[0, 1, 2, 0]])
    base = net.score(net.encode(groups), chosen)
    other = net.score(net.encode(groups), torch.tensor([[0, 2, 2, 0]]))
    assert base[:, :2].equal(other[:, :2]) and not base[:, 2].equal(other[:, 2])
    groups[0, 3] += 1
    assert not net.score(net.encode(groups), chosen)[0, 0].equal(base[0, 0])


def test_forget_gates_start_at_one_and_other_biases_at_zero():
    for name, bias in placer().named_parameters():
        if "bias" in name:
            gates = bias.view(4, -1)
            assert (gates[1] == (1.0 if "bias_ih" in name else 0.0)).all() and (gates[[0, 2, 3]] == 0).all()


def test_matrices_start_glorot_uniform_gate_by_gate():
    weight = placer(width=64).decoder.weight_hh_l0
    bound = math.sqrt(6 / (64 + 64))
    assert all(0.98 * bound < float(gate.detach().abs().max()) <= bound for gate in weight.chunk(4))
