"""`kohort groups watch`.

app       the command: what is watched, how often, and in which form it is printed
sampling  surveys at an interval, in a thread of their own
trends    surveys to figures: lag, rates, time to catch up, partitions that do not move
changes   what happened to a group between two surveys
screen    the figures as lines of a given width and height
picture   the lines on a terminal, drawn anew
"""
