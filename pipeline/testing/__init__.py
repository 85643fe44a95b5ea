"""For tests of programs and parts that use the pipeline."""

from pipeline.testing.conformance import check_postprocess, check_sink, check_source

__all__ = ["check_postprocess", "check_sink", "check_source"]
