"""What if the group were run otherwise? Its own changes, played by the simulator with other protocols.

history  the stories of the journal as changes of a group that can be played
child    the process that plays them: only it loads the simulator
answers  starts this process, off the event loop, limits its time, keeps its answers
words    the answer in sentences
"""
