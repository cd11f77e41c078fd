"""The options of `format("kohort")`, checked before a query starts.

source        the options of reads
member        the options of groupMode=member
sink          the options of writes, translated to librdkafka's settings
exactly_once  the options of delivery=exactly-once
names         every option name that the source knows
values        numbers, flags and choices from text
"""
