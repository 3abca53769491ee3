"""The fields that an error for a mistyped one names."""

import pytest

from store_client.errors import Misused
from store_client.search import FieldNames

pytestmark = pytest.mark.spec("CLI-152")
NAMES = FieldNames(
    (
        "files.assay_json.id",
        "files.assay_json.rna.library_construction",
        "files.assay_json.seq.instrument_model",
        "files.assay_json.seq.instrument_platform",
        "files.assay_json.seq.paired_ends",
        "files.assay_json.single_cell.cell_handling",
        "files.project_json.contributors.name",
        "files.project_json.experimental_design.text",
        "files.project_json.submitter.institution",
        "files.project_json.title",
        "files.sample_json.body_part.name",
        "files.sample_json.body_part.text",
        "files.sample_json.donor.age",
        "files.sample_json.donor.age_unit",
        "files.sample_json.donor.disease.text",
        "files.sample_json.donor.is_living",
        "files.sample_json.donor.life_stage",
        "files.sample_json.donor.sex",
        "files.sample_json.donor.species.ontology",
        "files.sample_json.donor.species.text",
        "files.sample_json.organ.ontology",
        "files.sample_json.organ.text",
        "manifest.creator_uid",
        "manifest.files.content-type",
        "manifest.files.name",
        "manifest.files.size",
        "manifest.version",
        "state",
        "uuid",
    )
)
"""As metadata of real experiments has them."""


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        ("specie", "files.sample_json.donor.species.ontology"),
        ("species", "files.sample_json.donor.species.ontology"),
        ("species.txt", "files.sample_json.donor.species.text"),
        ("sexx", "files.sample_json.donor.sex"),
        ("sx", "files.sample_json.donor.sex"),
        ("SEX", "files.sample_json.donor.sex"),
        ("Donor.Sex", "files.sample_json.donor.sex"),
        ("donor.sexx", "files.sample_json.donor.sex"),
        ("donr.sex", "files.sample_json.donor.sex"),
        ("sample.donor.sex", "files.sample_json.donor.sex"),
        ("files.sample_json.donr.sex", "files.sample_json.donor.sex"),
        ("ag", "files.sample_json.donor.age"),
        ("lifestage", "files.sample_json.donor.life_stage"),
        ("organs", "files.sample_json.organ.ontology"),
        ("bodypart", "files.sample_json.body_part.name"),
        ("instrument", "files.assay_json.seq.instrument_model"),
        ("instrument_modell", "files.assay_json.seq.instrument_model"),
        ("desease", "files.sample_json.donor.disease.text"),
        ("content_type", "manifest.files.content-type"),
        ("titel", "files.project_json.title"),
        ("uid", "uuid"),
        ("versoin", "manifest.version"),
    ],
)
def test_mistyped_field_names_the_nearest_first(typed: str, nearest: str) -> None:
    with pytest.raises(Misused) as raised:
        NAMES.resolve(typed)
    assert raised.value.hint.startswith(f"did you mean: {nearest}"), raised.value.hint


@pytest.mark.parametrize("typed", ["zzzz", "", ".", "x" * 10_000, "." * 10_000])
def test_name_like_none_says_where_fields_are_listed(typed: str) -> None:
    with pytest.raises(Misused) as raised:
        NAMES.resolve(typed)
    assert raised.value.hint == "store search fields lists them"
