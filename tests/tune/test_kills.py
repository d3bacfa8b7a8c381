"""A search whose driver is killed at random ends as the undisturbed one, and trains nothing twice."""

import pytest
from kills import COMMANDS, Search, kills

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Search:
    """The search that nobody kills."""
    search = Search(tmp_path_factory.mktemp("kills"), "undisturbed", "local").prepare()
    search.run()
    assert len(search.trials) == len(search.results) == 5
    assert not search.trained_twice
    return search


@pytest.mark.parametrize("executor", COMMANDS)
def test_a_killed_search_ends_as_the_undisturbed_one(executor: str, undisturbed: Search) -> None:
    search = Search(undisturbed.folder, executor, executor).prepare()
    assert search.run(*kills(3, seed=1)) >= 2
    assert search.trials == undisturbed.trials
    assert search.results == undisturbed.results
    assert not search.trained_twice
