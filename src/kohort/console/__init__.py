"""`kohort console`: a cluster's groups in a browser. It speaks Kafka's protocol, to any cluster. It only reads, unless
changes are allowed.

serve       the process: the socket, the web server, the end
listening   the address to listen on, and what it needs to be reached by other machines
door        which connections stay open in a flood of them
access      who may use the console, and for what
guard       hosts, methods and origins that are served; the headers of every response
login       the login, and the gate before all other pages
bearer      the claims of a bearer token
sessions    who has logged in: their own connections, and how long
forms       forms that browsers send
audit       the log: a line for each login and each change
app         the routes, the static files, the errors
shared      what all pages share: the snapshot, the answers, the templates
soon        outlines of pages that wait for the cluster
live        streams of differences to open pages
paging      sorted, searched and paged lists
words       states, numbers and instants as pages show them
payload     keys and values of records as text or hexadecimal digits
lag_lines   the course of a group's lag as a line
reading/    what the cluster is asked, and how often
rebalances/ the picture of one rebalance
ownership/  the picture of who owned which partition
what_if/    the group's own changes, played with other protocols by the simulator
changes/    what can be changed: forms, plans, confirmations
pages/      one module for each screen
templates/  HTML; templates escape all that they print
static/     the style sheet, the script, the icon
"""
