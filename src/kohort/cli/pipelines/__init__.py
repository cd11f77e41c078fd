"""`kohort pipeline`: data pipelines on Spark.

app                registers the pipelines
ingest             topics to a lake
ingest_progress    how far an ingest is
compact            merges small files of a lake
lake_options       options that ingest and compact share
history            the history of every group
quick_imports      what the history of a small log imports
simulate           what deployments and failures cost a group
simulate_options   its options, and the question that they ask
"""
