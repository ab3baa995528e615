"""The remoting protocol: frames, headers, codes, bodies."""
