"""One suite over every engine."""

import pytest

pytest.register_assert_rewrite("tests.contract.conformance")
