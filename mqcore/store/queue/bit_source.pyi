class BitSource:
    map_size: int
