// Counts the reads of a cohort's FASTQ files:
//   nextflow run count_reads.nf --manifest cohort.tsv -resume
// The manifest is the table that `store search WORDS --manifest cohort.tsv` writes.

params.manifest = 'cohort.tsv'
params.results = 'results'

// Depositors choose file names: a shell must not interpret them.
def quoted(text) { "'" + text.toString().replace("'", "'\\''") + "'" }

// The table quotes names that have a quote; `splitCsv` does not understand doubled ones.
def unquoted(text) { text.startsWith('"') ? text[1..-2].replace('""', '"') : text }

process FETCH {
    maxForks 4
    // Not in this replica yet, no answer, damaged bytes: worth another try.
    errorStrategy { task.exitStatus in [5, 7, 8] ? 'retry' : 'terminate' }
    maxRetries 3

    input:
    val row

    output:
    tuple val(row), path('reads.fastq.gz')

    script:
    def source = quoted("${row.bundle_uuid}.${row.bundle_version}/${row.file_name}")
    """
    store file cp --no-progress -- ${source} reads.fastq.gz
    """
}

process COUNT {
    input:
    tuple val(row), path(reads)

    output:
    path 'row.tsv'

    script:
    def ids = [row.bundle_uuid, row.bundle_version, row.file_uuid].collect { quoted(it) }.join(' ')
    """
    set -o pipefail
    reads=\$(gzip -cd ${reads} | awk 'END { printf "%d", NR / 4 }')
    printf '%s\\t%s\\t%s\\t%s\\n' ${ids} "\$reads" > row.tsv
    """
}

// Runs once, when every count is there: a cohort that lacks a file has no result.
process SUMMARY {
    publishDir params.results, mode: 'copy'

    input:
    path 'row*.tsv'

    output:
    path 'reads.tsv'

    script:
    """
    printf 'bundle_uuid\\tbundle_version\\tfile_uuid\\treads\\n' > reads.tsv
    sort row*.tsv >> reads.tsv
    """
}

workflow {
    rows = Channel.fromPath(params.manifest, checkIfExists: true)
        .splitCsv(header: true, sep: '\t')
        .map { it + [file_name: unquoted(it.file_name)] }
        .filter { it.file_name.endsWith('.fastq.gz') }
    SUMMARY(COUNT(FETCH(rows)).collect())
}
