"""Writes topics to a lake, exactly once: Parquet files in directories, a Delta table or an Iceberg table.

The format of the Parquet lake gets no further features. For more features use Delta or Iceberg.

    ingest            the streaming query that fills a lake
    ingest_settings   the settings of an ingest, kept beside its checkpoint
    lake              the protocol by which each batch enters a Parquet lake once
    tables            one sink for each table format
    row_shape         what a record becomes: a row, a row with JSON's columns, a dead letter
    json_schema       a schema from a sample of JSON values; names of columns
    sample            the sample
    compaction        merges small files
    file_swap         replaces files by others with the same rows
    locks             who may write
"""
