"""The tree against what it is by definition, on random sequences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redditbias_repro.scoring.prefix_tree import ancestor_mask, cut_rows, prefix_tree, row_nodes

SEQUENCES = st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=9).map(tuple), min_size=1, max_size=40)


def beginnings(tree):
    """The token sequence that each node stands for."""
    found = []
    for token, parent in zip(tree.token, tree.parent):
        found.append((*(found[parent] if parent >= 0 else ()), int(token)))
    return found


@settings(deadline=None, max_examples=200)
@given(SEQUENCES, st.booleans())
def test_a_tree_is_its_sequences(sequences, share):
    tree = prefix_tree(sequences, share)
    nodes = beginnings(tree)
    if share:
        assert (
            sorted(nodes) == nodes
            and set(nodes) == {s[:i] for s in sequences for i in range(1, len(s))}
            and len(set(nodes)) == len(nodes)
        )
    else:
        assert sorted(nodes) == sorted(s[:i] for s in sequences for i in range(1, len(s)))
    assert tree.depth.tolist() == [len(n) - 1 for n in nodes]
    for i, sequence in enumerate(sequences):
        path = tree.paths[i][tree.paths[i] >= 0]
        assert [(*nodes[n], t) for n, t in zip(tree.edge_node[path], tree.edge_token[path])] == [
            sequence[:k] for k in range(2, len(sequence) + 1)
        ]
        assert (tree.paths[i][len(path) :] == -1).all()
    assert (np.diff(tree.edge_node) >= 0).all() and set(tree.edge_node) == set(range(len(nodes)))


@settings(deadline=None, max_examples=200)
@given(SEQUENCES, st.integers(1, 30))
def test_rows_hold_all_nodes_and_their_ancestors(sequences, width):
    tree = prefix_tree(sequences)
    nodes, rows = beginnings(tree), cut_rows(tree, width)
    assert [n for start, stop in rows for n in range(start, stop)] == list(range(len(nodes)))
    for start, stop in rows:
        row = row_nodes(tree, start, stop)
        assert len(row) <= max(width, tree.depth[start] + 1) and (np.diff(row) > 0).all()
        mask = ancestor_mask(row, tree.end[row])
        for i, n in enumerate(row):
            assert sorted(nodes[k] for k in row[mask[i]]) == [nodes[n][: k + 1] for k in range(len(nodes[n]))]


@pytest.mark.parametrize("width", [32, 128])
def test_little_is_repeated(width):
    rng = np.random.default_rng(0)
    sequences = [tuple((1, 2, 3, *rng.integers(30, size=4), 4)) for _ in range(5000)]
    tree = prefix_tree(sequences)
    assert sum(len(row_nodes(tree, *r)) for r in cut_rows(tree, width)) < 1.35 * len(tree.token)
