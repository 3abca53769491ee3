"""Bundles of an invented atlas, with metadata as consortia write it."""

import struct
import zlib
from dataclasses import dataclass
from typing import Any

from tests.live.deposits import SampleBundle, make_file, make_metadata_file, random_bytes

PROJECTS = """\
Islets of the human pancreas in health and type 2 diabetes | Homo sapiens | pancreas | islet of Langerhans | beta cell | 10x 3' v3 | type 2 diabetes mellitus
Mononuclear cells of peripheral blood after vaccination | Homo sapiens | blood | venous blood | mononuclear cell | 10x 5' v2 | normal
A bone marrow atlas of eight donors | Homo sapiens | bone marrow | iliac crest | hematopoietic stem cell | 10x 3' v3 | normal
Margins of clear cell kidney tumours | Homo sapiens | kidney | cortex of kidney | epithelial cell | Smart-seq2 | clear cell renal carcinoma
Germinal centres of the tonsil | Homo sapiens | tonsil | germinal centre | B cell | CITE-seq | normal
Cerebral organoids over ninety days of culture | Homo sapiens | brain | cerebral cortex | neural progenitor cell | 10x 3' v2 | normal
Bipolar cells of the mouse retina | Mus musculus | eye | retina | bipolar neuron | Drop-seq | normal
Development of the mouse lung from E12 to P14 | Mus musculus | lung | alveolus | type 2 alveolar cell | 10x 3' v3 | normal
Gastrulation in the mouse embryo | Mus musculus | embryo | epiblast | epiblast cell | Smart-seq2 | normal
Regeneration of the zebrafish heart | Danio rerio | heart | ventricle | cardiomyocyte | 10x 3' v3 | normal
Zonation of the rat liver | Rattus norvegicus | liver | lobule | hepatocyte | MARS-seq | normal
Visual cortex of the macaque | Macaca mulatta | brain | primary visual cortex | excitatory neuron | 10x 3' v3 | normal
"""


@dataclass(frozen=True)
class Project:
    """A row of PROJECTS."""

    title: str
    organism: str
    organ: str
    part: str
    cell_type: str
    assay: str
    disease: str

    @property
    def short_name(self) -> str:
        """What its folder is called."""
        return "-".join(self.title.lower().split()[:4])


def list_projects() -> list[Project]:
    """Return all projects."""
    return [Project(*(cell.strip() for cell in row.split("|"))) for row in PROJECTS.splitlines()]


def make_bundle(number: int, project: Project, *, reads: int = 2) -> SampleBundle:
    """Make a bundle of metadata, reads, counts, a plot and notes."""
    files = [
        *(make_metadata_file(name, content) for name, content in _metadata(number, project)),
        *(
            make_file(
                f"reads/lane{lane}_R{read}.fastq.gz",
                "application/gzip",
                random_bytes(f"{project.title} {lane} {read}", 60_000 + 7_000 * number),
            )
            for lane in range(1, reads + 1)
            for read in (1, 2)
        ),
        make_file("analysis/counts.tsv", "text/tab-separated-values", _counts(number)),
        make_file("analysis/embedding.png", "image/png", draw_embedding(number)),
        make_file("README.txt", "text/plain", _notes(project)),
    ]
    return SampleBundle(project.short_name, tuple(files))


def _metadata(number: int, project: Project) -> list[tuple[str, dict[str, Any]]]:
    schema = "https://schema.example.org"
    return [
        (
            "project_0.json",
            {
                "describedBy": f"{schema}/type/project/14.2.0/project",
                "schema_type": "project",
                "project_core": {
                    "project_short_name": project.short_name,
                    "project_title": project.title,
                    "project_description": f"{project.cell_type.capitalize()}s of {project.part},"
                    f" {project.organism}, by {project.assay}.",
                },
                "contributors": [
                    {
                        "name": "Wanjiru,Amina",
                        "email": "amina.wanjiru@example.org",
                        "institution": "Institute of Cell Atlases",
                    },
                    {"name": "Lindqvist,Per", "institution": "University of the North"},
                ],
                "supplementary_links": [f"https://atlas.example.org/{project.short_name}"],
            },
        ),
        (
            "donor_organism_0.json",
            {
                "describedBy": f"{schema}/type/biomaterial/15.5.0/donor_organism",
                "schema_type": "biomaterial",
                "organism": project.organism,
                "sex": ("female", "male")[number % 2],
                "age": {"value": 20 + 5 * number, "unit": "year"},
                "disease": project.disease,
            },
        ),
        (
            "specimen_0.json",
            {
                "describedBy": f"{schema}/type/biomaterial/10.4.0/specimen",
                "schema_type": "biomaterial",
                "organ": project.organ,
                "organ_part": project.part,
                "cell_type": project.cell_type,
                "preservation": ("fresh", "frozen, liquid nitrogen")[number % 3 == 0],
            },
        ),
        (
            "library_preparation_0.json",
            {
                "describedBy": f"{schema}/type/protocol/6.3.1/library_preparation",
                "schema_type": "protocol",
                "assay": project.assay,
                "paired_end": True,
            },
        ),
    ]


GENES = ("INS", "GCG", "CD3E", "MS4A1", "EPCAM", "KRT19", "SOX2", "MYH6", "ALB", "PAX6")


def _counts(number: int) -> bytes:
    rows = ["gene\tcell_1\tcell_2\tcell_3\tcell_4"]
    rows += [
        "\t".join([gene, *(str((number + place * cell) ** 2 % 97) for cell in range(1, 5))])
        for place, gene in enumerate(GENES, 1)
    ]
    return ("\n".join(rows) + "\n").encode()


def _notes(project: Project) -> bytes:
    return (
        f"{project.title}\n\nReads of {project.cell_type}s, {project.assay}."
        " Counts are of the first cells only.\n"
    ).encode()


def draw_embedding(number: int, size: int = 160) -> bytes:
    """Draw a PNG of coloured clusters, like the plots that analyses make of cells."""
    centres = [
        ((37 * (number + k)) % 120 + 20, (53 * (k + 1) + 11 * number) % 120 + 20) for k in range(5)
    ]
    colours = [(31, 119, 180), (214, 39, 40), (44, 160, 44), (148, 103, 189), (255, 127, 14)]
    image = bytearray(b"\xff" * (size * size * 3))
    noise = random_bytes(f"embedding {number}", 5 * 400 * 2)
    for point in range(5 * 400):
        k, (dx, dy) = point % 5, noise[2 * point : 2 * point + 2]
        x, y = centres[k][0] + (dx - 128) // 8, centres[k][1] + (dy - 128) // 8
        if 0 <= x < size and 0 <= y < size:
            image[(y * size + x) * 3 : (y * size + x) * 3 + 3] = bytes(colours[k])
    rows = b"".join(b"\0" + image[y * size * 3 : (y + 1) * size * 3] for y in range(size))

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    compressed = zlib.compress(rows, 9)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", compressed)
        + chunk(b"IEND", b"")
    )
