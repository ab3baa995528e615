"""Settings of the name server: the shipped file, TOML, stock files, and wrong values."""
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import asdict

import mqcore
from mqcore.namesrv.kv import KeyValueError, KeyValues
from mqcore.namesrv.settings import NamesrvSettings, NamesrvSettingsError, load

SHIPPED = Path(mqcore.__file__).parent.parent / "config" / "namesrv.toml"


def test_the_shipped_file_is_the_default():
    settings, ignored = load(SHIPPED)

    assert settings == NamesrvSettings()
    assert ignored == []


def test_the_shipped_file_comments_every_key():
    lines = SHIPPED.read_text().splitlines()
    keys = {line.partition(" = ")[0]: lines[index - 1] for index, line in enumerate(lines)
            if " = " in line and not line.startswith("#")}

    fields = asdict(NamesrvSettings())
    assert keys.keys() == {*fields, *asdict(fields["tls"]), *asdict(fields["acl"])} - {"tls", "acl"}
    assert all(before.startswith("# ") for before in keys.values())


@pytest.mark.parametrize(("text", "names"), [
    ("[namesrv]\nlisten_port = 70000", ["namesrv.listen_port", "70000", "65535"]),
    ('[namesrv]\nlisten_port = "x"', ["namesrv.listen_port", '"x"', "a whole number from 0"]),
    ("[namesrv]\nlisten_prt = 1", ["namesrv.listen_prt", "did you mean listen_port"]),
    ("[nameserver]\nlisten_port = 1", ["nameserver", "[namesrv]"]),
    ("[namesrv\n", ["not TOML"]),
    ("listenPort=abc\n", ["namesrv.listen_port", '"abc"']),
    ("serverChannelMaxIdleTimeSeconds=-1\n", ["serverChannelMaxIdleTimeSeconds", "seconds"]),
    ("listenPort\n", ["line 1"]),
])
def test_a_wrong_setting_names_file_key_value_and_what_was_expected(tmp_path, text, names):
    file = tmp_path / "x.conf"
    file.write_text(text)

    with pytest.raises(NamesrvSettingsError) as error:
        load(file)
    assert all(name in str(error.value) for name in [str(file), *names])


def test_a_stock_file_is_mapped_and_what_has_no_effect_is_reported(tmp_path):
    file = tmp_path / "namesrv.conf"
    file.write_text(
        "# comment\nlistenPort=9999\nkvConfigPath=/data/kv.json\norderMessageEnable=true\n"
        "serverChannelMaxIdleTimeSeconds=60\nserverWorkerThreads=8\nnoSuchKey=1\n"
    )
    settings, ignored = load(file)

    assert settings == NamesrvSettings(
        listen_host="0.0.0.0", listen_port=9999, kv_config_path="/data/kv.json",
        order_message_enable=True, connection_idle_ms=60_000,
    )
    assert ignored == ["serverWorkerThreads", "noSuchKey (unknown)"]


def test_a_stock_key_value_file_is_read(tmp_path):
    file = tmp_path / "kvConfig.json"
    file.write_text('{"configTable":{"ORDER_TOPIC_CONFIG":{"T":"broker-a:4"}}}')

    assert KeyValues(file).get("ORDER_TOPIC_CONFIG", "T") == "broker-a:4"


@pytest.mark.parametrize("text", ["[]", "{", '{"configTable":{"N":1}}'])
def test_a_damaged_key_value_file_is_not_silently_emptied(tmp_path, text):
    file = tmp_path / "kvConfig.json"
    file.write_text(text)

    with pytest.raises(KeyValueError, match=str(file)):
        KeyValues(file)
    assert file.read_text() == text


def test_a_full_key_value_table_refuses_new_keys_and_takes_new_values(tmp_path):
    table = KeyValues(tmp_path / "kv.json", entry_count_max=1)
    table.put("N", "a", "1")

    with pytest.raises(KeyValueError):
        table.put("N", "b", "1")
    table.put("N", "a", "2")
    assert KeyValues(tmp_path / "kv.json").namespace("N") == {"a": "2"}


def test_the_process_says_when_it_is_ready_and_stops_on_sigterm(tmp_path):
    program = (
        "import sys\n"
        f"sys.path.insert(0, {str(SHIPPED.parent.parent)!r})\n"
        "from mqcore.namesrv.settings import NamesrvSettings\n"
        "from mqcore.namesrv.server import open_sockets\n"
        "from mqcore.workers.serving.namesrv import run\n"
        f"s = NamesrvSettings(listen_host='127.0.0.1', listen_port=0,"
        f" kv_config_path={str(tmp_path / 'kv.json')!r},"
        f" runtime_config_path={str(tmp_path / 'run.json')!r})\n"
        "sockets = open_sockets(s)\n"
        "run(s, sockets, ready_callback=lambda: print(sockets[0].getsockname()[1], flush=True))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
    )
    try:
        port = int(process.stdout.readline())
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("key", NamesrvSettings.__struct_fields__)
def test_nonsense_in_a_file_is_taken_or_one_short_line(key: str, tmp_path: Path) -> None:
    file = tmp_path / "namesrv.toml"
    for literal in ('""', '"x"', "-1", "0", "9223372036854775808", "1" + 30 * "0", "nan", "1.5",
                    "true", "[]", "{}", "1979-05-27", '"\\u0000"', '"a\\nb"',
                    '"' + 100_000 * "x" + '"', "[" * 5000, "9" * 5000):
        file.write_text(f"[namesrv]\n{key} = {literal}\n")
        is_taken_or_one_line(file)


@pytest.mark.parametrize("key", ["listenPort", "orderMessageEnable", "productEnvName", "unknown",
                                 "serverChannelMaxIdleTimeSeconds"])
def test_nonsense_in_a_stock_file_is_taken_or_one_short_line(key: str, tmp_path: Path) -> None:
    file = tmp_path / "namesrv.conf"
    for text in ("", "-1", "0", 100_000 * "x", 5000 * "9", "\0", "NaN", "1e400"):
        file.write_text(f"{key}={text}\n")
        is_taken_or_one_line(file)


def is_taken_or_one_line(file: Path) -> None:
    said = ""
    try:
        load(file)
    except NamesrvSettingsError as error:
        said = str(error)
    assert said == "" or said.isprintable(), ascii(said)
    assert len(said) < 1000
