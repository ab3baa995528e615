"""
Access control as stock has it: accounts with keys, white lists, permissions (remoting.md 7).

Files lie in a `folder`; what they say is `rules`, which the serving processes have as a table of
bytes. Nothing but `folder` touches a disk.
"""
