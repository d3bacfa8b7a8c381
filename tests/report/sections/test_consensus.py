"""The page on simulated runs, on nodes with separate models, and on their messages."""

import json

import pytest
from helpers.html_page import check

from nnlo_lib.report.charts.learning_curves import learning_curve_panels
from nnlo_lib.report.finished_job import load_jobs
from nnlo_lib.report.sections.communication import communication_table
from nnlo_lib.report.sections.quality import comparison
from nnlo_lib.report.sections.quality.consensus import (
    consensus_table,
    node_metric_ranges,
    runs_with_node_models,
)
from nnlo_lib.report.sections.quality.headline import headline
from nnlo_lib.report.statistics.comparisons_csv import compare_all
from nnlo_lib.report.tables import summarize
from nnlo_lib.report.time_base import time_base_of

UNBROKEN = "\u00a0"


def loaded(fake):
    jobs = load_jobs(fake.folders)
    return jobs, summarize(jobs)


def said(fake):
    jobs, table = loaded(fake)
    return str(headline(table, time_base_of(jobs), compare_all(table, jobs))).replace(UNBROKEN, " ")


def columns(fake):
    jobs, table = loaded(fake)
    return {
        column.heading: column.cells
        for column in comparison.comparison_columns(table, time_base_of(jobs), compare_all(table, jobs))
    }


def graded(fake, run, means, worst, best):
    """Write one job per mean, with the accuracy of the worst and the best node.

    Args:
        fake: the synthetic experiment.
        run: name of the run.
        means: mean accuracy of the nodes of each job.
        worst: accuracy of the worst node of each job.
        best: accuracy of the best node of each job.
    """
    for seed, (mean, low, high) in enumerate(zip(means, worst, best, strict=True), 1):
        final = {"val_accuracy": mean, "val_accuracy_min": low, "val_accuracy_max": high}
        loss = {"val_loss": 1 - mean, "val_loss_min": 1 - high, "val_loss_max": 1 - low}
        fake.change(fake.gossip(run, seed), final=final | loss)


def test_measured_seconds_are_called_nothing_else(fake, report):
    assert "virtual" not in check(report(fake.quickstart())).text.lower()


def test_simulated_seconds_are_virtual_wherever_they_are_shown(fake, report):
    fake.gossip("a"), fake.gossip("b")
    text = check(report(fake)).text
    assert "the ranks of every run took turns in one process" in text
    assert "samples per virtual second" in said(fake)
    assert {"virtual time", "samples/virtual s"} < set(columns(fake))
    assert not {"training time", "samples/s"} & set(columns(fake))
    assert "Virtual time by phase" in text
    assert "virtual time (s)" in text
    assert " virtual s: " in text


def test_virtual_and_measured_seconds_are_not_compared(fake, report):
    for seed in (1, 2, 3):
        fake.job("real", seed, speed=1000.0), fake.gossip("pretended", seed, speed=90_000.0)
    assert "trains fastest" not in said(fake)
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


def test_the_summary_says_how_the_ranks_talked(fake):
    fake.job("a"), fake.gossip("b")
    assert loaded(fake)[1]["transport"].tolist() == ["mpi", "simulated"]


def test_worst_and_best_node_of_all_jobs_by_hand(fake):
    graded(fake, "dsgd", means=(0.5, 0.7), worst=(0.3, 0.4), best=(0.6, 0.8))
    table = loaded(fake)[1]
    span = node_metric_ranges(table, "accuracy")["dsgd"]
    assert (span.nodes, span.worst, span.best) == (4, 0.3, 0.8)
    assert span.mean == pytest.approx(0.6)
    loss = node_metric_ranges(table, "loss")["dsgd"]
    assert (loss.worst, loss.best) == pytest.approx((0.7, 0.2))


def test_the_headline_and_the_row_tell_of_the_nodes(fake):
    graded(fake, "dsgd", means=(0.5,), worst=(0.3,), best=(0.6,))
    reached = "50.0 %, mean over 4 nodes (worst 30.0 %, best 60.0 %)"
    assert (
        f"Each node of <b>dsgd</b> has its own model; the averaged model gave the test result. The validation accuracy of the node models is {reached}."
        in said(fake)
    )
    cell = columns(fake)["test accuracy"]["dsgd"]
    assert cell.note.replace(UNBROKEN, " ") == f"validation {reached}"


def test_the_headline_tells_of_the_best_run_only(fake):
    fake.gossip("dsgd", level=0.5), fake.job("allreduce", level=0.99)
    assert "nodes" not in said(fake)
    assert columns(fake)["test accuracy"]["allreduce"].note == ""


def test_extremes_over_nodes_are_neither_panel_nor_metric(fake):
    fake.gossip()
    jobs, _ = loaded(fake)
    drawn = [panel.title for panel in learning_curve_panels(jobs, time_base_of(jobs))]
    assert drawn == [
        "Training loss", "Validation loss", "Validation accuracy", "Mean distance of the nodes from their mean",
        "Validation accuracy",
    ]  # fmt: skip
    assert set(columns(fake)) == {
        "test accuracy", "test loss", "virtual time", "samples/virtual s", "bytes sent", "ranks", "restarts",
    }  # fmt: skip


def test_a_metric_that_only_sounds_like_an_extreme_is_drawn(fake):
    path = fake.job() / "history.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([f"{header},val_error_max", *(f"{row},0.5" for row in rows)]) + "\n")
    jobs, _ = loaded(fake)
    assert "Validation error max" in [
        panel.title for panel in learning_curve_panels(jobs, time_base_of(jobs))
    ]


def test_graph_and_distances_of_the_runs_that_have_them(fake):
    fake.job("allreduce"), fake.gossip("dsgd")
    jobs, table = loaded(fake)
    found = consensus_table(jobs, node_metric_ranges(table, "accuracy"))
    assert list(found.rows) == ["dsgd"]
    row = dict(zip(found.headings, found.rows["dsgd"], strict=True))
    assert (row["graph"], row["spectral gap"], row["nodes"]) == ("cycle", "0.6667", "4")
    assert (row["distance to mean"], row["normalized"]) == ("0.05000", "0.005000")
    assert runs_with_node_models(jobs) == ["dsgd"]


def test_a_graph_that_differs_by_seed_has_a_spread(fake):
    (
        fake.change(fake.gossip("dsgd", 1), spectral_gap=0.2),
        fake.change(fake.gossip("dsgd", 2), spectral_gap=0.4),
    )
    found = consensus_table(loaded(fake)[0], {})
    assert found.rows["dsgd"][found.headings.index("spectral gap")].replace(UNBROKEN, " ") == "0.30 ± 0.14"


def test_the_section_on_nodes_comes_with_nodes(fake, report):
    fake.job("allreduce")
    assert "Consensus of the nodes" not in check(report(fake)).text
    fake.gossip("dsgd")
    found = check(report(fake))
    assert "Consensus of the nodes" in found.text
    assert "Each node of dsgd has its own model" in found.text


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


def test_compression_is_named_where_there_is_one(fake):
    fake.gossip("plain"), fake.gossip("small", compression="top_k")
    found = communication_table(loaded(fake)[0])
    place = found.headings.index("compression")
    assert (found.rows["plain"][place], found.rows["small"][place]) == ("–", "top_k")


def test_staleness_is_summed_over_jobs(fake, report):
    fake.change(fake.job("downpour", 1), histograms={"staleness": {"0": 2, "10": 1}})
    fake.change(fake.job("downpour", 2), histograms={"staleness": {"2": 3}})
    fake.job("allreduce")
    found = communication_table(loaded(fake)[0])
    row = dict(zip(found.headings, found.rows["downpour"], strict=True))
    assert (row["mean staleness"], row["largest staleness"]) == ("2.67", "10")  # mean: 16 / 6
    assert found.rows["allreduce"][-2:] == ("–", "–")
    assert "Staleness of an update" in check(report(fake)).text


def test_old_summaries_are_still_told(fake, report):
    fake.job("a"), fake.job("b", config={"algorithm": {"name": "b"}})
    found = communication_table(loaded(fake)[0])
    assert found.headings == ("bytes",)
    text = check(report(fake)).text
    assert "taleness" not in text
    assert "pectral gap" not in text


@pytest.mark.parametrize("empty", [{}, None])
def test_empty_histograms_and_gaps_are_left_out(fake, report, empty):
    fake.change(fake.job(), histograms=empty, spectral_gap=None, messages_sent=empty)
    assert "taleness" not in check(report(fake)).text


def test_every_line_of_many_runs_looks_different(fake, report):
    for number in range(20):
        fake.job(f"run-{number}", epochs=2)
    page = report(fake).read_text()
    legend = page.split('<ul class="legend">')[1].split("</ul>")[0]
    looks = [part.split('"')[0] for part in legend.split('<svg class="')[1:]]
    assert len(set(looks)) == 20
    styled = json.dumps(page.split("<style>")[1].split("</style>")[0])
    assert all(f".{name} " in styled for look in looks for name in look.split()[1:])
