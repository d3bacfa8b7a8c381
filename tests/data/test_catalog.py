import pytest

from nnlo_lib.core.errors import UserError
from nnlo_lib.core.user_code import load_implementation
from nnlo_lib.data.catalog import CATALOG, find_dataset
from nnlo_lib.data.readers.base import reader_function


def test_every_data_set_has_a_reader_and_a_place_to_come_from():
    for name, dataset in CATALOG.items():
        assert dataset.name == name
        assert callable(load_implementation(reader_function(dataset.reader)))
        assert dataset.mirrors or dataset.embedded or dataset.hint or dataset.generated
        for file in (*dataset.files, *filter(None, [dataset.instead])):
            assert len(file.content_sha256 or "") in (0, 64)
            assert len(file.md5 or "") in (0, 32)
            assert file.content_sha256 or file.md5


@pytest.mark.parametrize(
    ("word", "hint"),
    [("minst", "did you mean 'mnist'"), ("zzz", "known: cifar10, cifar100, diabetes, digits")],
)
def test_unknown_name_suggests_the_nearest(word, hint):
    with pytest.raises(UserError, match=hint):
        find_dataset(word)
