"""
Texts of access files with the edges that readers of YAML and Java's conversions have: what a stock
broker makes of them is asked in test_beside_stock.py.
"""
from __future__ import annotations

KEY, SECRET = "account-1", "secret-1"
WHITE = "10.0.0.9"                     # the address of those who ask
FACES = "\U0001F600\U0001F600\U0001F600"
_BASE = "base: &b {secretKey: secret-1, topicPerms: [orders=PUB]}\n"
_MORE = "more: &c {topicPerms: [orders=SUB], admin: true}\n"


def account(without: str = "", **fields: str) -> str:
    """A file with one account; without: a field that it does not have."""
    given = {"accessKey": KEY, "secretKey": SECRET, "topicPerms": "[orders=PUB|SUB]", **fields}
    lines = [f"{name.replace('__', '-')}: {value}" for name, value in given.items()
             if name != without]
    return "accounts:\n- " + "\n  ".join(lines) + "\n"


def _spelled() -> dict[str, str]:
    """Fields in other spellings."""
    found = {}
    for field, value, names in (
            ("accessKey", KEY, ("AccessKey", "accesskey", "access_key", "access__key",
                                "isAccessKey", "accessKey_")),
            ("secretKey", SECRET, ("SecretKey", "SECRET_KEY")),
            ("topicPerms", "[orders=PUB]", ("TopicPerms", "topic_perms", "topic__perms")),
            ("topicPerms", "PUB", ("DefaultTopicPerm", "defaulttopicperm", "isDefaultTopicPerm")),
            ("groupPerms", "[workers=SUB]", ("GroupPerms", "group_perms")),
            ("groupPerms", "SUB", ("Defaultgroupperm", "default_group_perm")),
            ("topicPerms", WHITE, ("WhiteRemoteAddress", "white_remote_address")),
            ("topicPerms", "true", ("Admin", "ADMIN", "isAdmin", "is_admin", "isadmin",
                                    "IsAdmin"))):
        for name in names:
            found[name] = account(field, **{name: value})
    return found


def _flags() -> dict[str, str]:
    return {f"admin: {value}": account(admin=value) for value in (
        "yes", "On", "TRUE", "'true'", "'TRUE'", "'yes'", "1", "0", "'1'", "'0'", "'2'", "'Y'",
        "'y'", "'T'", "'t'", "'F'", "'f'", "'N'", "'n'", "''", "' '", "~", "'null'", "'NULL'",
        "'Null'", "perhaps", "[]", "{}", "!!str true")}


def _values() -> dict[str, str]:
    secrets = ("12345678", "012345670", "0123456789", "0x1234567", "1_234_567_8", "190:20:30",
               "0b1010101", "+12345678", "-12345678", "12345678901234567890123", "'0123456'",
               "-.inf000", "1.5e+10", "!!str 12345678", "!!int '12345678'",
               "!!java.util.Date 2024", "six666", f"'{FACES}'", f"'{FACES}a'")
    permissions = ("[' orders = PUB ']", "[orders=PUB, orders=DENY]", "[orders=DENY, orders=PUB]",
                   "[orders=ALL]", "[orders=pub]", "[orders=ANY]", "['=PUB']", "['orders=']",
                   "[orders]", "[orders=PUB=SUB]", "['']", "[~]", "[5]", "orders=PUB", "~",
                   "{orders: PUB}", "[orders=PUB, '%RETRY%workers=SUB']")
    defaults = ("' PUB '", "PUB|SUB", "SUB|PUB", "PUB | SUB", "what", "~", "yes", "5")
    whites = ("~", "''", "' '", "'*'", "[10.0.0.9]", "10.0", "10.0.0.9", "5")
    return {
        **{f"secretKey: {value}": account(secretKey=value) for value in secrets},
        **{f"topicPerms: {value}": account(topicPerms=value) for value in permissions},
        **{f"defaultTopicPerm: {value}": account("topicPerms", defaultTopicPerm=value)
           for value in defaults},
        **{f"whiteRemoteAddress: {value}": account("topicPerms", whiteRemoteAddress=value)
           for value in whites},
        "groupPerms": account(groupPerms="['%RETRY%workers=SUB']"),
    }


def _merges() -> dict[str, str]:
    rest = f"accounts:\n- {{accessKey: {KEY}, secretKey: {SECRET}, topicPerms: [orders=PUB]"
    return {
        "<<: map": f"{_BASE}accounts:\n- <<: *b\n  accessKey: {KEY}\n",
        "<<: map, own before": f"{_BASE}accounts:\n- accessKey: {KEY}\n"
                               "  topicPerms: [orders=SUB]\n  <<: *b\n",
        "<<: map, own behind": f"{_BASE}accounts:\n- <<: *b\n  accessKey: {KEY}\n"
                               "  topicPerms: [orders=SUB]\n",
        "<<: list": f"{_BASE}{_MORE}accounts:\n- <<: [*b, *c]\n  accessKey: {KEY}\n",
        "<<: list, other order": f"{_BASE}{_MORE}accounts:\n- <<: [*c, *b]\n  accessKey: {KEY}\n",
        "<<: of the file": f"x: &x\n  {rest.replace('- ', '  - ')}}}\n<<: *x\n",
        "<<: text": f"accounts:\n- <<: a\n  accessKey: {KEY}\n  secretKey: {SECRET}\n",
        "<<: list of texts": f"accounts:\n- <<: [a]\n  accessKey: {KEY}\n  secretKey: {SECRET}\n",
        "<<: nothing": f"accounts:\n- <<: ~\n  accessKey: {KEY}\n  secretKey: {SECRET}\n",
        "'<<'": f"{_BASE}accounts:\n- '<<': *b\n  accessKey: {KEY}\n  secretKey: {SECRET}\n",
        "a value <<": f"{rest}, note: <<}}\n",
    }


def _whole() -> dict[str, str]:
    one = account()
    return {
        "an account": one, "nothing": "", "a comment": "# nothing\n", "null": "~\n",
        "a list": "- a\n", "a text": "hello\n", "two documents": f"{one}---\na: b\n",
        "a tab": "accounts:\n-\taccessKey: account-1\n", "CR LF": one.replace("\n", "\r\n"),
        "a mark": f"\ufeff{one}", "no accounts": "globalWhiteRemoteAddresses: [10.0.0.9]\n",
        "accounts: null": "globalWhiteRemoteAddresses: [10.0.0.9]\naccounts:\n",
        "accounts: []": "globalWhiteRemoteAddresses: [10.0.0.9]\naccounts: []\n",
        "accounts: map": "accounts: {accessKey: account-1, secretKey: secret-1}\n",
        "accounts: [null]": "accounts:\n- ~\n", "accounts: [text]": "accounts:\n- account-1\n",
        "Accounts": one.replace("accounts", "Accounts"),
        "global: text": f"globalWhiteRemoteAddresses: 10.0.0.9\n{one}",
        "global: null": f"globalWhiteRemoteAddresses:\n{one}",
        "global: [null]": f"globalWhiteRemoteAddresses: [~]\n{one}",
        "global: [5]": f"globalWhiteRemoteAddresses: [5]\n{one}",
        "global: ['']": f"globalWhiteRemoteAddresses: ['']\n{one}",
        "global: list": f"globalWhiteRemoteAddresses: ['10.0.0.1,10.0.0.9']\n{one}",
        "GlobalWhiteRemoteAddresses": f"GlobalWhiteRemoteAddresses: [10.0.0.9]\n{one}",
        "unknown fields": f"{account(color='red')}more: {{a: [1]}}\n",
        "no secret": account("secretKey"), "no key": account("accessKey"),
        "short": account(accessKey="short!"), "half pairs": account(accessKey=f"'{FACES}a'"),
        "block texts": "accounts:\n- accessKey: >-\n    account-1\n  secretKey: |-\n    secret-1\n"
                       "  topicPerms:\n  - orders=PUB\n",
        "a field twice": "accounts:\n- accessKey: account-1\n  secretKey: secret-9\n"
                         "  secretKey: secret-1\n  topicPerms: [orders=PUB]\n",
        "an account twice": one + account(topicPerms="[orders=DENY]").partition("\n")[2],
        "an alias": "perms: &p [orders=PUB]\naccounts:\n- {accessKey: account-1, secretKey: "
                    "secret-1, topicPerms: *p}\n",
        "versions": f"{one}dataVersion: [{{counter: 1, timestamp: 0}}]\n",
        "a version of text": f"{one}dataVersion: [{{counter: a, timestamp: 0}}]\n",
        "versions: map": f"{one}dataVersion: {{counter: 1, timestamp: 0}}\n",
    }


FILES = {**_whole(), **_values(), **_flags(), **_spelled(), **_merges()}
# Taken by stock, which makes of them what nobody means; ours says the line and what was expected.
REFUSED = {
    "a number with a fraction": account(secretKey="1234567.5"),
    "a date": account(secretKey="2024-01-01"),
    "admin: 2": account(admin="2"),
    "a field in two spellings": account(AccessKey="account-2"),
    "a value =": account(note="="),
    "<<: nested": "x: &x {admin: true}\nbase: &b {<<: *x, secretKey: secret-1}\n"
                  f"accounts:\n- <<: *b\n  accessKey: {KEY}\n",
    "<<: nested, inline": f"{_BASE}accounts:\n- accessKey: {KEY}\n"
                          "  <<: {<<: *b, topicPerms: [orders=SUB]}\n",
    "<<: twice": f"{_BASE}{_MORE}accounts:\n- <<: *b\n  <<: *c\n  accessKey: {KEY}\n",
}
