"""A run's keys: for one user's eyes, and refused with a cure where others could have seen them."""

import os
import stat

import pytest

from srl.core.errors import UserError
from srl.streams.transport.keys import (
    VARIABLE,
    Keys,
    create_keys,
    key_file,
    keys_from_environment,
    read_keys,
)


def test_what_was_created_is_read_again(tmp_path, monkeypatch):
    keys = create_keys(tmp_path)
    assert read_keys(tmp_path) == keys
    monkeypatch.setenv(VARIABLE, keys.to_text())
    assert keys_from_environment() == keys
    monkeypatch.delenv(VARIABLE)
    assert keys_from_environment() is None


def test_each_run_has_its_own():
    assert Keys.new() != Keys.new()


def test_only_the_user_can_read_them(tmp_path):
    before = os.umask(0)
    try:
        create_keys(tmp_path)
    finally:
        os.umask(before)
    file = key_file(tmp_path)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]


def test_the_secret_is_not_shown():
    keys = Keys.new()
    assert keys.public.decode() in repr(keys)
    assert keys.secret.decode() not in f"{keys!r} {keys}"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_keys_that_others_can_reach_are_refused_with_the_cure(tmp_path, mode):
    create_keys(tmp_path)
    key_file(tmp_path).chmod(mode)
    with pytest.raises(UserError, match=f"others can read .*chmod 600 {key_file(tmp_path)}"):
        read_keys(tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_keys_of_another_user_are_refused(tmp_path):
    create_keys(tmp_path)
    os.chown(key_file(tmp_path), 65534, -1)
    with pytest.raises(UserError, match="belongs to user 65534, not to 0"):
        read_keys(tmp_path)


def test_missing_keys_and_links_to_keys_are_refused(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read_keys(tmp_path)
    create_keys(tmp_path)
    elsewhere = key_file(tmp_path).rename(tmp_path / "elsewhere")
    key_file(tmp_path).symlink_to(elsewhere)
    with pytest.raises(UserError, match="cannot read the run's keys"):
        read_keys(tmp_path)
    key_file(tmp_path).unlink()
    os.mkfifo(key_file(tmp_path), 0o600)
    with pytest.raises(UserError, match="is not a file"):
        read_keys(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "a b",
        "é" * 40,
        Keys.new().public.decode(),
        Keys.new().public.decode() + " " + Keys.new().secret.decode(),
        Keys.new().to_text() + " more",
        Keys.new().to_text()[:-1],
    ],
    ids=["nothing", "x", "two words", "accents", "one key", "swapped", "too many", "too short"],
)
def test_broken_keys_are_refused_by_the_name_of_where_they_stand(tmp_path, monkeypatch, text):
    create_keys(tmp_path)
    key_file(tmp_path).write_text(text)
    with pytest.raises(UserError, match=f"{key_file(tmp_path)} holds no pair of keys"):
        read_keys(tmp_path)
    if text:
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(UserError, match=f"{VARIABLE} holds no pair of keys"):
            keys_from_environment()
