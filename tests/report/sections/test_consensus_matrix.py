"""Heat map of the distances between nodes."""

import numpy as np
import pytest
from helpers.html_page import check

from nnlo_lib.core.errors import UserError


def distances(nodes):
    return np.abs(np.subtract.outer(np.arange(float(nodes)), np.arange(float(nodes)))) * 1.25


def test_the_report_shows_the_distances(fake, report):
    folder = fake.gossip()
    np.savez(folder / "consensus.npz", distance_820=distances(4), distance_779=distances(4) + 9)
    text = check(report(fake)).text
    assert "distance between two nodes" in text
    assert "3.75" in text
    assert "12.75" not in text


def test_the_distances_of_many_nodes_are_left_to_their_file(fake, report):
    np.savez(fake.gossip() / "consensus.npz", distance_820=distances(21))
    text = check(report(fake)).text
    assert "The distances between 21 nodes are too many for this page" in text
    assert "distance between two nodes" not in text


def test_a_file_without_the_published_step_is_refused(fake, report):
    np.savez(fake.gossip() / "consensus.npz", distance_41=distances(4))
    with pytest.raises(UserError, match=r"consensus\.npz is damaged: it has no square array distance_820"):
        report(fake)
