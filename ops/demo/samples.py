"""The project's own samples: single-cell experiments as laboratories describe them, and their data.

Everything is made from the tables below, the same at every run. Among the data are one object that
is large enough for a multipart entity tag, one bundle of many small files and one empty file.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ops.demo.bundles import JSON, SampleBundle, SampleFile, held, metadata_file

MB = 1_048_576
LARGE_BYTES = 200 * MB
MANY_FILES = 48
READ_BYTES = 24_000

SCHEMAS = "https://schema.example.org/type"


@dataclass(frozen=True)
class Experiment:
    """One row: who was looked at, how, and by which version of the metadata schema."""

    label: str
    organism: str
    taxon: int
    tissue: str
    cells: str
    method: str
    instrument: str
    donors: int
    schema: str
    note: str = ""


EXPERIMENTS = (
    Experiment(
        "pancreas-islets-healthy",
        *("Homo sapiens", 9606, "pancreas", "beta cell", "Smart-seq2", "Illumina NextSeq 500"),
        donors=8,
        schema="5.1.0",
    ),
    Experiment(
        "pancreas-islets-diabetic",
        *("Homo sapiens", 9606, "pancreas", "alpha cell", "Smart-seq2", "Illumina NextSeq 500"),
        donors=4,
        schema="5.1.0",
        note="type 2 diabetes mellitus",
    ),
    Experiment(
        "blood-mononuclear-cells",
        *("Homo sapiens", 9606, "blood", "mononuclear cell", "10x 3' v2", "Illumina HiSeq 4000"),
        donors=1,
        schema="5.2.0",
    ),
    Experiment(
        "bone-marrow-atlas",
        *("Homo sapiens", 9606, "bone marrow", "haematopoietic stem cell", "10x 3' v2"),
        instrument="Illumina HiSeq 4000",
        donors=8,
        schema="5.2.0",
    ),
    Experiment(
        "cord-blood-atlas",
        *("Homo sapiens", 9606, "umbilical cord blood", "haematopoietic stem cell", "10x 3' v2"),
        instrument="Illumina HiSeq 4000",
        donors=8,
        schema="5.2.0",
    ),
    Experiment(
        "kidney-tumour-margins",
        *("Homo sapiens", 9606, "kidney", "epithelial cell", "10x 5'", "Illumina NovaSeq 6000"),
        donors=3,
        schema="6.0.0",
        note="clear cell renal carcinoma",
    ),
    Experiment(
        "tonsil-germinal-centre",
        *("Homo sapiens", 9606, "tonsil", "B cell", "CITE-seq", "Illumina NovaSeq 6000"),
        donors=5,
        schema="6.0.0",
    ),
    Experiment(
        "cortex-organoids",
        *("Homo sapiens", 9606, "brain organoid", "neural progenitor", "Fluidigm C1"),
        instrument="Illumina HiSeq 2500",
        donors=2,
        schema="5.1.0",
        note="induced pluripotent stem cells, 33 to 65 days",
    ),
    Experiment(
        "fibroblast-imaging",
        *("Homo sapiens", 9606, "skin", "fibroblast", "MERFISH", "custom microscope"),
        donors=1,
        schema="6.0.0",
        note="140 genes in 1,001 cells",
    ),
    Experiment(
        "retina-bipolar-cells",
        *("Mus musculus", 10090, "retina", "bipolar neuron", "Drop-seq", "Illumina HiSeq 2500"),
        donors=6,
        schema="5.1.0",
    ),
    Experiment(
        "mouse-lung-development",
        *("Mus musculus", 10090, "lung", "alveolar type 2 cell", "Smart-seq2"),
        instrument="Illumina NextSeq 500",
        donors=4,
        schema="5.2.0",
    ),
    Experiment(
        "mouse-spleen-dissociation",
        *("Mus musculus", 10090, "spleen", "dendritic cell", "MARS-seq", "Illumina HiSeq 1500"),
        donors=3,
        schema="4.6.1",
    ),
    Experiment(
        "mouse-embryo-gastrulation",
        *("Mus musculus", 10090, "whole embryo", "epiblast cell", "10x 3' v1"),
        instrument="Illumina HiSeq 2500",
        donors=10,
        schema="5.2.0",
    ),
    Experiment(
        "mouse-tibia-transcripts",
        *("Mus musculus", 10090, "tibia", "chondrocyte", "seqFISH", "spinning disk confocal"),
        donors=2,
        schema="6.0.0",
    ),
    Experiment(
        "zebrafish-heart-repair",
        *("Danio rerio", 7955, "heart", "cardiomyocyte", "SORT-seq", "Illumina NextSeq 500"),
        donors=12,
        schema="5.2.0",
        note="seven days after cryoinjury",
    ),
    Experiment(
        "zebrafish-lineages",
        *("Danio rerio", 7955, "whole embryo", "blastomere", "inDrop", "Illumina NextSeq 500"),
        donors=30,
        schema="5.1.0",
    ),
    Experiment(
        "fly-midgut-stem-cells",
        *("Drosophila melanogaster", 7227, "midgut", "intestinal stem cell", "10x 3' v2"),
        instrument="Illumina NovaSeq 6000",
        donors=40,
        schema="6.0.0",
    ),
    Experiment(
        "macaque-visual-cortex",
        *("Macaca mulatta", 9544, "primary visual cortex", "excitatory neuron", "10x 3' v3"),
        instrument="Illumina NovaSeq 6000",
        donors=2,
        schema="6.0.0",
    ),
    Experiment(
        "rat-liver-zonation",
        *("Rattus norvegicus", 10116, "liver", "hepatocyte", "Smart-seq2", "Illumina HiSeq 2500"),
        donors=3,
        schema="5.2.0",
    ),
    Experiment(
        "arabidopsis-root-tip",
        *("Arabidopsis thaliana", 3702, "root tip", "trichoblast", "Drop-seq"),
        instrument="Illumina NextSeq 500",
        donors=25,
        schema="4.6.1",
    ),
)

EMPTY_FILE_IN = "mouse-spleen-dissociation"
MANY_FILES_IN = "cortex-organoids"
LARGE_FILE_IN = "fibroblast-imaging"
TYPED = f'{JSON}; type="metadata/biomaterial"'


def bundles(large_bytes: int = LARGE_BYTES) -> tuple[SampleBundle, ...]:
    """All samples."""
    return tuple(_bundle(experiment, large_bytes) for experiment in EXPERIMENTS)


def _bundle(experiment: Experiment, large_bytes: int) -> SampleBundle:
    metadata = (
        metadata_file("project.json", _project(experiment)),
        *(
            metadata_file(f"sample_{number}.json", _sample(experiment, number), TYPED)
            for number in range(min(experiment.donors, 3))
        ),
        metadata_file("assay.json", _assay(experiment)),
    )
    return SampleBundle(experiment.label, (*metadata, *_data(experiment, large_bytes)))


def _described(experiment: Experiment, kind: str, content: dict[str, Any]) -> dict[str, Any]:
    described_by = f"{SCHEMAS}/{kind}/{experiment.schema}/{kind}"
    return {"describedBy": described_by, "schema_version": experiment.schema, **content}


def _project(experiment: Experiment) -> dict[str, Any]:
    title = f"{experiment.cells.capitalize()}s of the {experiment.organism} {experiment.tissue}"
    return _described(
        experiment,
        "project",
        {
            "project_id": experiment.label,
            "title": title,
            "summary": f"{title}, read cell by cell with {experiment.method}.",
            "organism": experiment.organism,
            "method": experiment.method,
            "contributors": [
                {"name": "A. Okafor", "institution": "Institute of Cell Maps", "lead": True},
                {"name": "M. Lindqvist", "institution": "Northern Sequencing Centre"},
            ],
            "supplements": [experiment.note] if experiment.note else [],
        },
    )


def _sample(experiment: Experiment, number: int) -> dict[str, Any]:
    return _described(
        experiment,
        "sample",
        {
            "sample_id": f"{experiment.label}-{number + 1}",
            "genus_species": {"text": experiment.organism, "taxon": experiment.taxon},
            "organ": experiment.tissue,
            "cell_type": experiment.cells,
            "donor": {"number": number + 1, "age": 20.5 + 7 * number, "sex": "FM"[number % 2]},
            "disease": experiment.note or None,
        },
    )


def _assay(experiment: Experiment) -> dict[str, Any]:
    return _described(
        experiment,
        "assay",
        {
            "assay_id": f"{experiment.label}-assay",
            "single_cell": {"method": experiment.method, "cells": 96 * experiment.donors},
            "instrument": experiment.instrument,
            "paired_ends": experiment.method.startswith(("10x", "Drop", "inDrop")),
            "reads": [{"number": read, "length": 26 + 72 * (read - 1)} for read in (1, 2)],
        },
    )


def _data(experiment: Experiment, large_bytes: int) -> Iterator[SampleFile]:
    count = MANY_FILES if experiment.label == MANY_FILES_IN else 2
    for number in range(1, count + 1):
        name = f"reads/{experiment.label}_{number}.fastq.gz"
        yield held(name, "application/gzip", noise(name, READ_BYTES))
    if experiment.label == EMPTY_FILE_IN:
        yield held("reads/unassigned.fastq", "text/plain", b"")
    if experiment.label == LARGE_FILE_IN:
        blocks = partial(large, large_bytes)
        yield SampleFile("images/stack.tiff", "image/tiff", large_bytes, blocks)


def noise(seed: str, size: int) -> bytes:
    """Bytes that do not compress, the same for the same seed."""
    return random.Random(seed).randbytes(size)


def large(size: int) -> Iterator[bytes]:
    """`size` bytes in blocks that all differ, cheap to make."""
    body = noise("large", MB)
    for start in range(0, size, MB):
        yield (start.to_bytes(8, "big") + body[8:])[: size - start]
