from __future__ import annotations

import numpy as np
import pytest
import torch

from testbed.worker.workloads import blocks
from testbed.worker.workloads.blocks import CLASSES, FEATURES, NODES, TRAIN_NODES, Blocks

SHA256 = "63f7f268be3684b6ad681486f8b930b2ddb08406151ea00104393a35656e814f"
"""Of the graph that the docstring speaks of."""


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def trained(seen: slice, steps: int) -> float:
    """Accuracy of a model that is given these inputs alone, and zeros for all others."""
    workload = Blocks()
    model = workload.model(0)
    optimizer = workload.optimizer(model.parameters())
    kept = torch.zeros(3 * FEATURES)
    kept[seen] = 1
    for step in range(steps):
        features, classes = workload.batch(step, rank=0, world_size=1, batch_size=128, seed=0)
        optimizer.zero_grad()
        workload.loss(model, (features * kept, classes)).backward()
        optimizer.step()
    with torch.no_grad():
        model[0].weight.mul_(kept)
    return workload.evaluate(model)


def test_the_graph_is_the_one_that_was_measured_and_the_spec_is_told() -> None:
    blocks._graph.cache_clear()
    assert Blocks().data_hash() == blocks._graph().sha256 == SHA256


def test_blocks_are_equal_and_pairs_are_joined_by_their_chances() -> None:
    graph = blocks._graph()
    assert np.bincount(graph.classes).tolist() == [NODES // CLASSES] * CLASSES
    first, second = graph.edges.T
    assert (first < second).all() and len(np.unique(graph.edges, axis=0)) == len(graph.edges)
    same = graph.classes[first] == graph.classes[second]
    size = NODES // CLASSES
    pairs_within = CLASSES * size * (size - 1) / 2
    pairs_between = NODES * (NODES - 1) / 2 - pairs_within
    # a deviation of either count is below 0.8 % of it
    assert same.sum() == pytest.approx(0.008 * pairs_within, rel=0.03)
    assert (~same).sum() == pytest.approx(0.00114 * pairs_between, rel=0.03)


def test_a_sample_is_a_nodes_features_and_their_means_over_one_and_two_hops() -> None:
    graph = blocks._graph()
    neighbours = [[] for _ in range(NODES)]
    for first, second in graph.edges.tolist():
        neighbours[first].append(second)
        neighbours[second].append(first)

    def hop(node: int, hops: int) -> np.ndarray:
        if hops == 0:
            return graph.features[node].astype(float)
        return np.mean([hop(other, hops - 1) for other in neighbours[node]], axis=0)

    (features, classes), (unseen, _) = blocks._data()
    assert features.shape == (TRAIN_NODES, 3 * FEATURES) and len(unseen) == NODES - TRAIN_NODES
    for node in (0, 17, TRAIN_NODES - 1):
        assert classes[node] == graph.classes[node]
        for hops, found in enumerate(features[node].double().numpy().reshape(3, FEATURES)):
            scale = np.linalg.norm(found) / np.linalg.norm(hop(node, hops))
            np.testing.assert_allclose(found, scale * hop(node, hops), rtol=1e-4, atol=1e-6)
    deviations = torch.cat([features, unseen]).view(NODES, 3, FEATURES).std(dim=(0, 2))
    torch.testing.assert_close(deviations, torch.ones(3), rtol=0.001, atol=0)


def test_a_node_without_neighbours_has_means_of_zero() -> None:
    means = blocks._neighbour_means(np.array([[1.0], [2.0], [6.0], [9.0]]), np.array([[0, 1], [1, 2]]))
    assert means.tolist() == [[2.0], [3.5], [2.0], [0.0]]


def test_neighbours_tell_what_a_nodes_own_features_do_not() -> None:
    own, all_of_them = trained(slice(FEATURES), 100), trained(slice(None), 100)
    assert 0.4 < own < 0.52
    assert all_of_them > 0.79 == Blocks.metric.target


def test_labels_are_the_classes_of_the_samples_by_number() -> None:
    labels = Blocks().labels()
    assert labels.dtype == torch.int64 and labels.shape == (Blocks().samples(),)
    chosen = torch.tensor([3, 3999, 0])
    assert torch.equal(Blocks().picked(chosen)[1], labels[chosen])
    assert labels.bincount().tolist() == np.bincount(blocks._graph().classes[:TRAIN_NODES]).tolist()


def test_a_global_batch_does_not_depend_on_the_number_of_workers() -> None:
    workload, whole = Blocks(), Blocks()
    for step in (0, 31, 32):  # an epoch ends after 31.25 steps
        parts = [workload.batch(step, rank=rank, world_size=4, batch_size=32, seed=7) for rank in range(4)]
        features, classes = whole.batch(step, rank=0, world_size=1, batch_size=128, seed=7)
        assert torch.equal(torch.cat([part[0] for part in parts]), features)
        assert torch.equal(torch.cat([part[1] for part in parts]), classes)


def test_the_model_follows_from_the_seed_alone() -> None:
    torch.manual_seed(1)
    first = Blocks().model(5)
    torch.manual_seed(2)
    second = Blocks().model(5)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert sum(p.numel() for p in first.parameters()) == 13_448
    assert not list(first.buffers())
    assert not torch.equal(next(Blocks().model(6).parameters()), next(first.parameters()))


def test_evaluation_changes_nothing() -> None:
    workload = Blocks()
    model = workload.model(0)
    before, state = [p.detach().clone() for p in model.parameters()], torch.get_rng_state()
    accuracy = workload.evaluate(model)
    assert workload.evaluate(model) == accuracy < 0.3
    assert model.training
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)


def test_parameters_out_of_range_are_refused_together() -> None:
    with pytest.raises(ValueError, match="learning_rate=0: must be above 0") as caught:
        Blocks(learning_rate=0, momentum=1)
    assert "momentum=1: must be in [0, 1)" in str(caught.value)
