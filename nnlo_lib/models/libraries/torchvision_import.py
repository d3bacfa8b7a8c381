"""Import of torchvision, which timm needs and transformers uses if it is installed."""

import sys
from types import ModuleType


def import_torchvision() -> None:
    """Import torchvision also if its compiled operators are of another build of torch, as PyPI's beside torch+cpu.

    The import then fails where the operators get their shapes. Networks for classification do not call them.
    """
    try:
        import torchvision
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        for half in [each for each in sys.modules if each.partition(".")[0] == "torchvision"]:
            del sys.modules[half]
        sys.modules["torchvision._meta_registrations"] = ModuleType("torchvision._meta_registrations")
        import torchvision  # noqa: F401
