"""Which control groups a process is in."""

import pytest

from srl.system.control_group import control_groups


@pytest.mark.parametrize(
    ("listed", "controller", "groups"),
    [
        ("0::/system.slice/x\n", "", ["system.slice/x", "system.slice", "."]),
        ("4:cpu,cpuacct:/a\n3:memory:/b\n0::/c\n", "", ["c", "."]),
        ("4:cpu,cpuacct:/a\n3:memory:/b\n0::/c\n", "memory", ["memory/b", "memory"]),
        ("4:cpu,cpuacct:/jobs\n", "", ["."]),
        (None, "", ["."]),
    ],
)
def test_control_groups_are_read_where_there_are_any(
    tmp_path, monkeypatch, listed, controller, groups
):
    if listed:
        (tmp_path / "own").write_text(listed)
    monkeypatch.setattr("srl.system.control_group.ROOT", tmp_path)
    monkeypatch.setattr("srl.system.control_group.OWN", tmp_path / "own")
    found = control_groups(controller)
    assert found == [tmp_path / group for group in groups]
