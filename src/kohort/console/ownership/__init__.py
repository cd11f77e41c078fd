"""Who owned which partition over time.

periods  the stories of the journal as periods of ownership
window   the part of them that a page shows
drawing  this part as SVG
"""
