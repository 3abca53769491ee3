"""A pytest plugin: google-crc32c as it is where its compiled form cannot be installed."""

import sys
import warnings

sys.modules["google_crc32c.cext"] = None  # type: ignore[assignment]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import google_crc32c

assert google_crc32c.implementation == "python"
