"""A pytest plugin that disables the compiled form of google-crc32c."""

import sys
import warnings

sys.modules["google_crc32c.cext"] = None  # type: ignore[assignment]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import google_crc32c

assert google_crc32c.implementation == "python"
