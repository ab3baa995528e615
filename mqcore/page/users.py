"""The users of the page: scrypt hashes, sessions in memory, tries of passwords."""
from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from mqcore.client import Credentials

COST = 14                              # 2 ** COST, 16 MiB of memory for one hash
COST_MAX = 17
BLOCK = 8
SALT_BYTES, HASH_BYTES = 16, 32
MEMORY_MAX = 256 << 20
SESSIONS_MAX = 1_000
SESSION_S = 12 * 3_600.0               # without a request
TRIES_A_MINUTE = 5
TRIERS_MAX = 1_000
PASSWORD_MIN, TEXT_MAX = 8, 1_024


def line_of(name: str, password: str) -> str:
    """The line of `http.users` for a new user."""
    salt = secrets.token_bytes(SALT_BYTES)
    return f"{name}:scrypt:{COST}:{salt.hex()}:{_hashed(password, COST, salt).hex()}"


def _hashed(password: str, cost: int, salt: bytes) -> bytes:
    return hashlib.scrypt(password.encode(errors="surrogatepass"), salt=salt,
                          n=1 << min(cost, COST_MAX), r=BLOCK, p=1, maxmem=MEMORY_MAX,
                          dklen=HASH_BYTES)


@dataclass
class Session:
    """
    One browser. user "": it has not logged in.

    token         what a form that changes something must bring along
    credentials   of an account of the broker, which signs what the session asks for
    """

    token: str
    user: str = ""
    credentials: Credentials | None = None
    used: float = 0.0


@dataclass
class Users:
    """
    lines      of http.users
    account    whether an access key and its secret are an administrator's; None: not asked
    clock      seconds, steady
    """

    clock: Callable[[], float]
    lines: Iterable[str] = ()
    account: Callable[[str, str], bool] | None = None
    _sessions: OrderedDict[str, Session] = field(default_factory=OrderedDict)
    _tries: OrderedDict[str, deque[float]] = field(default_factory=OrderedDict)

    @property
    def asked(self) -> bool:
        """Whether a login is needed."""
        return bool(tuple(self.lines)) or self.account is not None

    # -- sessions ---------------------------------------------------------------------------------

    def begin(self, user: str = "", credentials: Credentials | None = None) -> str:
        """The cookie of a new session."""
        key = secrets.token_urlsafe(32)
        self._sessions[key] = Session(secrets.token_urlsafe(32), user, credentials, self.clock())
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return key

    def session(self, key: str) -> Session | None:
        """The session of a cookie; None: there is none, or it has been silent for too long."""
        found = self._sessions.get(key)
        if found is None:
            return None
        now = self.clock()
        if now - found.used > SESSION_S:
            del self._sessions[key]
            return None
        found.used = now
        self._sessions.move_to_end(key)
        return found

    def end(self, key: str) -> Session | None:
        """Log out."""
        return self._sessions.pop(key, None)

    def has_sessions_of(self, access_key: str) -> bool:
        """Whether another browser is logged in with an account of the broker."""
        return any(one.credentials is not None and one.credentials.access_key == access_key
                   for one in self._sessions.values())

    def newest_account(self) -> Credentials | None:
        """The account of the session that was used last."""
        return next((one.credentials for one in reversed(self._sessions.values())
                     if one.credentials is not None), None)

    # -- passwords --------------------------------------------------------------------------------

    def may_try(self, who: str) -> bool:
        """Whether an address or a name may try another password; counts this one."""
        now = self.clock()
        tries = self._tries.setdefault(who, deque())
        self._tries.move_to_end(who)
        while len(self._tries) > TRIERS_MAX:
            self._tries.popitem(last=False)
        while tries and now - tries[0] >= 60:
            tries.popleft()
        if len(tries) >= TRIES_A_MINUTE:
            return False
        tries.append(now)
        return True

    def succeeded(self, who: str) -> None:
        """The right password was given: earlier tries no longer count."""
        self._tries.pop(who, None)

    def check(self, name: str, password: str) -> tuple[bool, Credentials | None]:
        """
        Whether name and password fit, and the account that signs then. Takes the time of one hash,
        whether the name exists or not.
        """
        if len(name) > TEXT_MAX or len(password) > TEXT_MAX:
            return False, None
        known = {line.partition(":")[0]: line.split(":") for line in self.lines}
        _, _, cost, salt, wanted = known.get(name) or (
            "", "", str(COST), "00" * SALT_BYTES, "00" * HASH_BYTES)
        given = _hashed(password, int(cost), bytes.fromhex(salt))
        if hmac.compare_digest(given, bytes.fromhex(wanted)) and name in known:
            return True, None
        if self.account is not None and name not in known and self.account(name, password):
            return True, Credentials(name, password)
        return False, None
