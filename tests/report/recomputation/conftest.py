"""Show the differences in failed assertions of the shared tests."""

import pytest

pytest.register_assert_rewrite("helpers.recomputation.page_tests")
