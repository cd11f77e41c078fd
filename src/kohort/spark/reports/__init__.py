"""HTML reports, and the simulation of many groups on a Spark cluster.

page                `Page`: text, numbers, plots and tables in one HTML file
figures             colours and style of the plots; a plot as SVG
templates/          the Jinja2 templates of `Page`
simulation          `simulate`: one task for each point and seed
simulation_report   the report that compares the protocols, or advises one group
fleet_report        the report on the load of many groups
"""
