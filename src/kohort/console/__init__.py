"""`kohort console`: a cluster's groups in a browser. It reads only, and speaks Kafka's protocol, to any cluster.

serve       the process: the socket, the web server, the end
listening   the address to listen on: loopback only
guard       hosts and methods that are served; the headers of every response
app         the routes, the static files, the errors
shared      what all pages share: the snapshot, the answers, the templates
live        streams of differences to open pages
paging      sorted, searched and paged lists
words       states, numbers and instants as pages show them
reading/    what the cluster is asked, and how often
rebalances/ the picture of one rebalance
pages/      one module for each screen
templates/  HTML; templates escape all that they print
static/     the style sheet, the script, the icon
"""
