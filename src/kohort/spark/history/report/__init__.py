"""Finds trouble in the tables of a history, and writes the report.

incidents         rewinds, zombies, standstill, offsets that will expire
findings          one line in words for each group and kind of trouble
standing          groups that are deserted, stuck or falling behind, in words
journal_findings  what the stories of kohort's journal tell, in words
names             the names and colours of clients, the same in all plots
plots             lag, rates, rebalances and owners as matplotlib figures
page              the HTML page
"""
