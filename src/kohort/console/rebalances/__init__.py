"""The picture of one rebalance.

lanes    a story as lanes of members over time
drawing  lanes as SVG
"""
