"""Job scripts as public repositories have them: here-documents, defaults of variables, spaces after a backslash."""

import pytest

from nnlo_lib.compat.importers.shell_script import read_script
from nnlo_lib.compat.importers.shell_syntax import split_commands
from nnlo_lib.core.errors import UserError

TRAIN = "python TrainingDriver.py --model m.json"


def commands(text):
    """Return the line and the words of each started program with its number of ranks."""
    return [(each.line, each.program.words[-1], each.program.launcher) for each in read_script(text).commands]


@pytest.mark.parametrize("mark", ["EOF", "'EOF'", '"EOF"', "-EOF", " EOF"])
def test_a_configuration_written_by_a_script_is_no_command(mark):
    text = f"cat > run.cfg <<{mark}\nmpirun -np 99 {TRAIN}.old\n\nEOF\nmpirun -np 3 {TRAIN}\n"
    assert commands(text) == [(5, "m.json", "mpirun")]


def test_a_program_in_python_is_not_read_as_shell():
    text = f"python - <<'PY' > ranks.txt\nimport os\nmpirun = os.environ\nPY\nmpirun -np 3 {TRAIN}\n"
    assert [words for _, words, launcher in commands(text) if launcher] == ["m.json"]


@pytest.mark.parametrize(
    ("head", "body"),
    [
        ("sbatch -n 4 <<EOF", ""),
        ("/usr/bin/bash <<EOF", ""),
        ("cat > job.sh <<EOF", "#!/bin/bash\n"),
        ("cat <<EOF > job", "#SBATCH -n 4\n"),
    ],
)
def test_a_job_script_in_a_here_document_is_read(head, body):
    assert ("m.json", "mpirun") in [
        each[1:] for each in commands(f"{head}\n{body}mpirun -np 4 {TRAIN}\nEOF\n")
    ]


def test_a_shift_and_a_here_string_begin_no_here_document():
    text = f"N=$((1 << NBITS))\ntr a b <<< EOF\n{TRAIN}\nEOF\n"
    assert [each.text.strip() for each in split_commands(text)][2] == TRAIN


@pytest.mark.parametrize("default", ['""', "''", '"-p long"'])
def test_quotes_of_a_default_are_no_word(default):
    text = f"ARGS=${{ARGS:-{default}}}\nsrun -n 4 ${{ARGS}} {TRAIN}\nsrun -n 4 ${{MORE:-{default}}} {TRAIN}"
    assert [words for _, words, _ in commands(text)] == ["m.json", "m.json"]


@pytest.mark.parametrize("rest", [" ", "\t", " # all GPUs", "  \r"])
def test_spaces_after_a_backslash_are_refused(rest):
    with pytest.raises(UserError, match="line 2: spaces follow the backslash"):
        split_commands(f"date\nmpirun -np 4 \\{rest}\n  {TRAIN}\n")


def test_a_backslash_in_a_comment_or_a_here_document_is_no_continuation():
    assert len(split_commands("# files \\ \ncat > art <<EOF\n  /\\ \nEOF\ndate\n")) == 2


@pytest.mark.parametrize("written", ["$@", '"$@"', "${@:3}", "$*", "$MORE"])
def test_arguments_of_the_script_are_no_arguments_of_the_program(written):
    (command,) = read_script(f"MORE=${{@:2}}\nmpirun -np 4 {TRAIN} {written}\n").commands
    assert command.program.words[-1] == "m.json"
    assert command.unset[0][1] in "@*{"


def test_a_sum_of_unknown_numbers_is_named_as_a_whole():
    text = f"N=$(wc -l < hosts)\nRANKS=$((N * 4))\nmpiexec -n $RANKS {TRAIN}\n"
    with pytest.raises(UserError, match=r"-n: .*got '\$\(\(N \* 4\)\)'"):
        read_script(text)
    assert read_script(text.replace("$(wc -l < hosts)", "2")).commands[0].program.step.numbers["ranks"] == 8


def test_horovodrun_starts_ranks():
    (command,) = read_script(f"horovodrun -np 8 -H a:4,b:4 --gloo {TRAIN}\n").commands
    assert command.program.launcher == "horovodrun"
    assert command.program.step.numbers["ranks"] == 8
