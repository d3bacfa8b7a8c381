"""A job that the batch system accepts late, after its answer was lost, is watched and not submitted a second time."""

from types import SimpleNamespace

from nnlo_lib.batch.job_states import Fate, JobReport, QueueReport
from nnlo_lib.batch.submission_line import SubmissionLine

LOST = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"


class LostAnswers(SubmissionLine):
    """Each submission loses its answer; the jobs `listed` run."""

    def __init__(self):
        self.listed, self.sent, self.watched, self.timers = [], [], [], []
        self._form_line(SimpleNamespace(look=self._look))

    def _look(self, numbers):
        return QueueReport({number: JobReport(Fate.RUNNING, "RUNNING") for number in numbers})

    def _send(self, job):
        self.sent.append(job)
        assert self._refused(job, LOST) is None

    def _unrecorded(self, job):
        return self.listed

    def _recorded(self, job):
        return []

    def _adopt(self, job, number):
        self.watched.append((job, number))

    def _name_of(self, job):
        return job

    def _after(self, seconds, function, *arguments):
        self.timers.append(lambda: function(*arguments))

    def _say(self, line):
        assert "submissions wait" in line


def test_a_job_that_is_listed_late_is_not_submitted_again():
    line = LostAnswers()
    line._submit_in_turn("trial 0")
    assert (line.sent, line.watched) == (["trial 0"], [])
    line.listed = ["7"]
    line.timers.pop()()
    assert (line.sent, line.watched, line.timers) == (["trial 0"], [("trial 0", "7")], [])
