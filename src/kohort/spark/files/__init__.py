"""Files and directories wherever Spark can reach them. One interface, two implementations.

directory   the interface, a file's entry in a listing, the error
hadoop      through Hadoop's file systems in the driver's JVM: also what the lake's protocol needs
arrow       through Arrow's file systems, for processes without a JVM: the planning process, Python workers
"""
