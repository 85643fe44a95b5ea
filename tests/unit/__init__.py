"""Tests of single parts."""

import pytest

pytest.register_assert_rewrite("tests.unit.playing")
