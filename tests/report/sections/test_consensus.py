"""The page on simulated runs, on nodes with separate models, and on their messages."""

import pytest
from helpers.html_page import check

from nnlo_lib.report.figure import run_styles
from nnlo_lib.report.learning_curves import learning_curve_figures
from nnlo_lib.report.quantities import time_base_of
from nnlo_lib.report.sections import comparison
from nnlo_lib.report.sections.headline import headline
from nnlo_lib.report.sections.nodes import consensus_table, node_metric_ranges, runs_with_node_models
from nnlo_lib.report.sections.resources import communication_table
from nnlo_lib.report.statistics.comparison_text import compare_all
from nnlo_lib.report.tables import load_jobs, summarize

UNBROKEN = "\u00a0"


def loaded(fake):
    jobs = load_jobs(fake.folders)
    return jobs, summarize(jobs)


def said(fake):
    jobs, table = loaded(fake)
    return str(headline(table, time_base_of(jobs), compare_all(table, jobs), jobs)).replace(UNBROKEN, " ")


def columns(fake):
    jobs, table = loaded(fake)
    return dict(comparison.comparison_columns(table, time_base_of(jobs), compare_all(table, jobs)))


def graded(fake, means, worst, best):
    """Write one job per mean accuracy of the nodes, with the accuracy of the worst and of the best node."""
    for seed, (mean, low, high) in enumerate(zip(means, worst, best, strict=True), 1):
        final = {"val_accuracy": mean, "val_accuracy_min": low, "val_accuracy_max": high}
        loss = {"val_loss": 1 - mean, "val_loss_min": 1 - high, "val_loss_max": 1 - low}
        fake.change(fake.gossip("dsgd", seed), final=final | loss)


def test_simulated_seconds_are_virtual_wherever_they_are_shown(fake, report):
    fake.gossip("a"), fake.gossip("b")
    page = check(report(fake))
    for words in (
        "the ranks of every run took turns in one process",
        "Virtual time by phase",
        "virtual time (s)",
    ):
        assert words in page.text
    assert "samples per virtual second" in said(fake)
    assert {"virtual time", "samples/virtual s"} < set(columns(fake))
    assert not {"training time", "samples/s"} & set(columns(fake))
    assert '"title":"virtual time (s)"' in page.figures


def test_virtual_and_measured_seconds_are_not_compared(fake, report):
    for seed in (1, 2, 3):
        fake.job("real", seed, speed=1000.0), fake.gossip("pretended", seed, speed=90_000.0)
    assert loaded(fake)[1]["transport"].tolist() == ["mpi", "simulated"] * 3
    assert "not compared" in said(fake)
    for heading in ("training time", "samples/s"):
        cells = columns(fake)[heading]
        assert not any(cell.best for cell in cells.values())
        assert (cells["real"].note, cells["pretended"].note) == ("", "virtual")
    text = check(report(fake)).text
    assert "the ranks of pretended took turns" in text
    assert "time (s): virtual or measured" in text


def test_the_clock_marks_a_win_where_all_seconds_are_of_one_kind(fake):
    for seed in (1, 2, 3):
        fake.gossip("slow", seed, speed=1000.0), fake.gossip("fast", seed, speed=90_000.0)
    assert columns(fake)["samples/virtual s"]["fast"].best
    assert "<b>fast</b> has the highest mean training speed" in said(fake)


def test_the_headline_names_worst_and_best_node_of_all_jobs(fake):
    graded(fake, means=(0.5, 0.7), worst=(0.3, 0.4), best=(0.6, 0.8))
    reached = "60.0 %, mean over 4 nodes (worst 30.0 %, best 80.0 %)"
    own = "Each node of <b>dsgd</b> has its own model; the averaged model gave the test result."
    assert f"{own} The validation accuracy of the node models is {reached}." in said(fake)
    loss = node_metric_ranges(loaded(fake)[1], "loss")["dsgd"]
    assert (loss.worst, loss.best) == pytest.approx((0.7, 0.2))


def test_the_headline_shows_the_nodes_of_the_best_run_only(fake):
    fake.gossip("dsgd", level=0.5), fake.job("allreduce", level=0.99)
    assert "nodes" not in said(fake)
    assert columns(fake)["test accuracy"]["allreduce"].note == ""


def test_extremes_over_nodes_are_neither_panel_nor_metric(fake):
    """A metric of the user whose name only ends like an extreme is drawn."""
    fake.add_to_history(fake.gossip(), val_error_max=0.5)
    jobs, _ = loaded(fake)
    assert [panel.title for panel in learning_curve_figures(jobs, time_base_of(jobs))] == [
        "Training loss", "Validation loss", "Validation error max", "Validation accuracy",
        "Mean distance of the nodes from their mean", "Validation accuracy",
    ]  # fmt: skip
    assert set(columns(fake)) == {
        "test accuracy", "test loss", "virtual time", "samples/virtual s", "bytes sent", "ranks", "restarts",
    }  # fmt: skip


def test_graph_and_distances_of_the_runs_that_have_them(fake):
    fake.job("allreduce"), fake.gossip("dsgd")
    jobs, table = loaded(fake)
    found = consensus_table(jobs, node_metric_ranges(table, "accuracy"))
    assert list(found.rows) == ["dsgd"]
    row = dict(zip(found.headings, found.rows["dsgd"], strict=True))
    assert (row["graph"], row["spectral gap"], row["nodes"]) == ("cycle", "0.6667", "4")
    assert row["effective neighbors"] == "3.438"
    assert (row["distance to mean"], row["normalized"]) == ("0.05000", "0.005000")
    assert runs_with_node_models(jobs) == ["dsgd"]


def test_a_graph_that_differs_by_seed_has_a_spread(fake):
    for seed, gap in ((1, 0.2), (2, 0.4)):
        fake.change(fake.gossip("dsgd", seed), spectral_gap=gap)
    found = consensus_table(loaded(fake)[0], {})
    assert found.rows["dsgd"][found.headings.index("spectral gap")].replace(UNBROKEN, " ") == "0.30 ± 0.14"


def test_messages_stand_beside_bytes(fake):
    """Votes and sums for metrics are messages, but the page's message size is the size of a vector."""
    sent = {"parameters": 9_000_000, "gradient": 3_000_000, "control": 5000, "metrics": 800}
    fake.change(fake.gossip("dsgd", 1), messages_sent={"parameters": 90, "control": 10}, bytes_sent=sent)
    few = {"parameters": 200, "gradient": 10, "metrics": 50, "telemetry": 40}
    fake.change(fake.gossip("dsgd", 2), messages_sent=few, bytes_sent=sent)
    found = communication_table(loaded(fake)[0])
    row = dict(zip(found.headings, found.rows["dsgd"], strict=True))
    assert (row["messages"], row["messages with vectors"]) == ("200", "150")
    assert row["bytes per message with a vector"] == f"80.0{UNBROKEN}kB"  # 24 MB in 300 messages


def test_a_training_that_sends_only_votes_has_no_vector_size(fake):
    fake.change(fake.job("individual"), messages_sent={"control": 100}, bytes_sent={"control": 800})
    fake.change(fake.job("allreduce"), messages_sent={"gradient": 100}, bytes_sent={"gradient": 800})
    found = communication_table(loaded(fake)[0])
    assert found.rows["individual"][found.headings.index("bytes per message with a vector")] == "–"


def test_staleness_is_summed_over_jobs(fake, report):
    fake.change(fake.job("downpour", 1), histograms={"staleness": {"0": 2, "10": 1}})
    fake.change(fake.job("downpour", 2), histograms={"staleness": {"2": 3}})
    fake.job("allreduce")
    found = communication_table(loaded(fake)[0])
    row = dict(zip(found.headings, found.rows["downpour"], strict=True))
    assert (row["mean staleness"], row["largest staleness"]) == ("2.67", "10")  # mean: 16 / 6
    assert found.rows["allreduce"][-2:] == ("–", "–")
    assert "Staleness of an update" in check(report(fake)).text


def test_a_summary_of_an_older_version_has_fewer_columns(fake, report):
    fake.job("a"), fake.job("b", config={"algorithm": {"name": "b"}})
    fake.change(fake.job("c"), histograms={}, messages_sent=None, spectral_gap=None)
    found = communication_table(loaded(fake)[0])
    assert found.headings == ("bytes",)
    text = check(report(fake)).text
    assert "taleness" not in text
    assert "pectral gap" not in text


def test_the_lines_of_twenty_runs_look_different():
    styles = run_styles([f"run-{number}" for number in range(20)])
    looks = zip(
        styles["color"]["scale"]["range"], map(str, styles["strokeDash"]["scale"]["range"]), strict=True
    )
    assert len(set(looks)) == 20
