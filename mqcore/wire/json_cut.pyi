CUT_ENDS: int
CUT_CLOSES: int
CUT_OPENS: int
CUT_NOWHERE: int

def cut(text: bytes, at: int, wanted: int, most: int) -> tuple[int, int, int]: ...
def past_space(text: bytes, at: int, most: int) -> int: ...
