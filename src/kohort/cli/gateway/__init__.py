"""`kohort gateway`.

app       the gateway's process
transfer  `import-offsets` and `export-offsets`
"""
