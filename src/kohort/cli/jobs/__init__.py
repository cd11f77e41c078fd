"""Files for spark-submit, in a directory of their own: spark-submit puts it in front of the import path.

pipeline  `kohort pipeline` in the session that spark-submit has made
"""
