"""sys.exit() in a user's model, loss or metric is an error that names the file."""

import pytest
import torch

from nnlo_lib.config.problem import ClassificationConfig
from nnlo_lib.core.errors import UserError
from nnlo_lib.models.factory import build_model
from nnlo_lib.problems.adversarial.gan_losses import gan_losses_by_name
from nnlo_lib.problems.losses import metric_by_name

SCORES = torch.zeros(2, 1)
USES = {
    "model": lambda path: build_model(f"{path}:leave", {}, (3,), 2, 0),
    "loss": lambda path: metric_by_name(ClassificationConfig(), f"{path}:leave")(SCORES, SCORES),
    "GAN losses": lambda path: gan_losses_by_name(f"{path}:leave")(SCORES, SCORES),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("place", ["function", "import"])
def test_an_exit_is_an_error_of_the_user(tmp_path, use, place):
    body = "import sys\ndef leave(*args):\n    sys.exit(0)\n"
    (tmp_path / "mine.py").write_text(body if place == "function" else body + "sys.exit('no license')\n")
    with pytest.raises(UserError, match=r"SystemExit: (0|no license)") as error:
        USES[use](tmp_path / "mine.py")
    assert "mine.py:" in str(error.value)
