"""Finds trouble in the tables of a history, and writes the report.

incidents   rewinds, zombies, standstill, offsets that will expire
findings    one line in words for each group and kind of trouble
plots       lag, rates, rebalances and owners as matplotlib figures
page        the HTML page
"""
