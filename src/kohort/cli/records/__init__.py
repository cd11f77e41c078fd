"""`kohort produce` and `kohort consume`.

produce  lines to records
consume  records to lines
"""
