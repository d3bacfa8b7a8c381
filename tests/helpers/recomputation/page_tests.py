"""Tests that each recomputed page has in common; the test module provides the fixture `page`."""

import pytest

from helpers.recomputation.audited_page import AuditedPage
from helpers.recomputation.search.figures import SEARCH_FIGURES
from helpers.recomputation.sections.figures import FIGURES


class PageTests:
    """Tests of the numbers of a page."""

    def test_every_number_is_explained(self, page: AuditedPage) -> None:
        assert page.unexplained() == []

    def test_a_changed_digit_is_noticed(self, page: AuditedPage) -> None:
        assert page.unnoticed(count=10, seed=1) == []


class ExperimentPageTests(PageTests):
    """Tests of the page of an experiment."""

    @pytest.mark.parametrize("figure", FIGURES)
    def test_figure_equals_raw_files(self, page: AuditedPage, figure: str) -> None:
        assert page.differences(figure) == []


class SearchPageTests(PageTests):
    """Tests of the page of a search."""

    @pytest.mark.parametrize("figure", SEARCH_FIGURES)
    def test_figure_equals_raw_files(self, page: AuditedPage, figure: str) -> None:
        assert page.differences(figure) == []
