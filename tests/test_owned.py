"""A folder is this user's alone where nobody else may write in it, nor rename any folder on the way to it."""

import os

import pytest

from gnnplace import kept

OTHER = 12345
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to other users")


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "above" / "folder"
    made.mkdir(parents=True, mode=0o700)
    return made


def _said(folder):
    return (kept.fault(str(folder)) or "").replace(str(folder).partition("/above")[0], "")


def test_a_folder_of_ones_own_is_no_fault_and_neither_is_one_to_be_made(folder):
    assert _said(folder) == _said(folder / "later" / "and later") == ""
    assert kept.fault("/") is None if os.geteuid() == 0 else kept.fault("/") == "/: belongs to another user"


@pytest.mark.parametrize("mode", [0o722, 0o702, 0o777, 0o1777])
def test_others_may_not_write_in_it(folder, mode):
    folder.chmod(mode)
    assert _said(folder) == "/above/folder: other users may write there"


def test_others_may_not_rename_what_leads_to_it_but_a_sticky_folder_keeps_them_from_it(folder):
    folder.parent.chmod(0o777)
    assert _said(folder) == _said(folder / "later") == "/above: other users may write there"
    folder.parent.chmod(0o1777)
    assert _said(folder) == _said(folder / "later") == ""


@AS_ROOT
def test_it_and_what_leads_to_it_belong_to_this_user(folder):
    os.chown(folder, OTHER, -1)
    assert _said(folder) == "/above/folder: belongs to another user"
    os.chown(folder, 0, -1)
    os.chown(folder.parent, OTHER, -1)
    assert _said(folder) == "/above: belongs to another user"


@AS_ROOT
def test_a_folder_of_roots_leads_to_one_of_ones_own_but_is_none(folder, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: OTHER)
    for path in folder.parents:
        assert path.stat().st_uid == 0
    assert _said(folder) == "/above/folder: belongs to another user"
    os.chown(folder, OTHER, -1)
    assert _said(folder) == ""


def test_links_are_followed_and_where_they_lie_counts(folder, tmp_path):
    (tmp_path / "links").mkdir()
    for name, target in (("relative", "../above"), ("absolute", str(folder.parent)), ("twice", "relative/../above/./folder")):
        (tmp_path / "links" / name).symlink_to(target)
    ways = [tmp_path / "links" / way for way in ("relative/folder", "absolute/folder", "twice", "relative/later")]
    assert [kept.fault(str(way)) for way in ways] == [None] * 4
    folder.parent.chmod(0o777)
    assert all(kept.fault(str(way)) == f"{folder.parent}: other users may write there" for way in ways)
    folder.parent.chmod(0o700)
    (tmp_path / "links").chmod(0o777)  # where others may put another link
    assert all(kept.fault(str(way)) == f"{tmp_path}/links: other users may write there" for way in ways)


@AS_ROOT
def test_a_link_of_another_user_leads_nowhere(folder, tmp_path):
    (tmp_path / "link").symlink_to("above/folder")
    os.lchown(tmp_path / "link", OTHER, -1)
    assert kept.fault(str(tmp_path / "link")) == f"{tmp_path}/link: belongs to another user"


def test_a_ring_of_links_and_what_is_no_folder_are_faults(tmp_path):
    (tmp_path / "ring").symlink_to("ring")
    assert kept.fault(str(tmp_path / "ring")) == f"{tmp_path}/ring: a link after 40 others"
    (tmp_path / "file").write_text("")
    assert kept.fault(str(tmp_path / "file")) == f"{tmp_path}/file: is no folder"


class User:
    pw_name, pw_gid = "me", 77


@pytest.mark.parametrize(
    ("mode", "group", "name", "members", "listed", "alone"),
    [
        (0o770, 77, "me", (), (), True),
        (0o770, 77, "me", ("me",), (), True),
        (0o770, 77, "me", ("you",), (), False),
        (0o770, 77, "staff", (), (), False),
        (0o770, 78, "me", (), (), False),
        (0o770, 77, "me", (), (kept.ACCESS_LIST,), False),  # its rights are those of the group's bits
        (0o777, 77, "me", (), (), False),
        (0o750, 78, "staff", ("you",), (), True),
    ],
)
def test_a_group_may_write_that_is_this_users_own(tmp_path, monkeypatch, mode, group, name, members, listed, alone):
    found = type("Found", (), {"gr_name": name, "gr_mem": members})
    monkeypatch.setattr(kept.pwd, "getpwuid", lambda _: User)
    monkeypatch.setattr(kept.grp, "getgrgid", lambda _: found)
    monkeypatch.setattr(os, "listxattr", lambda _: listed)
    status = os.stat_result((mode, 0, 0, 1, os.geteuid(), group, 0, 0, 0, 0))
    assert kept.alone(status, str(tmp_path)) is alone
