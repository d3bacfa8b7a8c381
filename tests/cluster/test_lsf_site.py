"""What a site of LSF lets its users read: the upstream plugin ends with a KeyError or IndexError without one of these."""

from subprocess import CompletedProcess

import pytest

from nnlo_lib.batch.lsf_queue import site_parameters

SHOWN = " LSB_SHAREDIR = /lsf/work\n LSF_CONFDIR = {conf}\n LSF_UNIT_FOR_LIMITS = GB\n"


def parameters(conf, **answers):
    """Return the parameters on a site where `badmin` and `lsclusters` answer as given; None: they cannot be called."""
    given = {
        "badmin": f"BADMIN\n{SHOWN.format(conf=conf)}",
        "lsclusters": "CLUSTER_NAME STATUS\nc1 ok\n",
    } | answers

    def run(program, *_):
        return None if given[program] is None else CompletedProcess((), 0, given[program], "")

    return site_parameters(run, {"SNAKEMAKE_LSF_MEMFMT": "perJob"})


@pytest.fixture
def conf(tmp_path):
    folder = tmp_path / "lsbatch/c1/configdir"
    folder.mkdir(parents=True)
    (folder / "lsb.params").write_text(
        "Begin Parameters\n# DEFAULT_QUEUE = old\nDEFAULT_QUEUE = normal # as ever\n"
    )
    return tmp_path


def test_all_parameters(conf):
    found = parameters(conf)
    assert (found["DEFAULT_QUEUE"], found["LSF_UNIT_FOR_LIMITS"], found["LSF_MEMFMT"]) == (
        "normal",
        "GB",
        "perjob",
    )


@pytest.mark.parametrize(
    "answers",
    [
        {"badmin": None}, {"badmin": ""}, {"badmin": "User permission denied\n"}, {"lsclusters": None}, {"lsclusters": ""},
        {"badmin": f"c\n{SHOWN.format(conf='/nowhere')}"},
    ],
)  # fmt: skip
def test_without_a_parameter_the_default_of_lsf_holds(conf, answers):
    found = parameters(conf, **answers)
    assert "DEFAULT_QUEUE" not in found
    assert found["LSF_MEMFMT"] == "perjob"
