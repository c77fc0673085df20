"""Tests addresses of remote storage: what is read, what is refused, and that no key is shown."""

import pytest

from metta_fast.contracts.errors import UserError
from metta_fast.storage.remote.address import masked, parse
from metta_fast.storage.remote.fetch import is_safe
from metta_fast.storage.remote.files import RemoteError
from metta_fast.storage.remote.open_files import open_files


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://bucket/runs", "s3://bucket/runs"),
        ("s3://bucket", "s3://bucket"),
        ("S3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://bucket/runs", "gs://bucket/runs"),
        ("az://container/runs", "az://container/runs"),
        (
            "abfss://container@account.dfs.core.windows.net/runs",
            "abfss://container@account.dfs.core.windows.net/runs",
        ),
        ("memory://x/runs", "memory://x/runs"),
        ("/mnt/share/../runs", "/mnt/runs"),
        ("file:///mnt/runs", "/mnt/runs"),
    ],
)
def test_addresses(text, shown):
    address = parse(text)
    assert str(address) == shown
    assert parse(str(address)) == address
    assert str(address.child("job")) == f"{shown}/job"
    assert address.child("job").parent == address
    assert address.child("job").name == "job"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ftp://host/x", "unknown protocol ftp"),
        ("s3:/bucket/x", "two slashes"),
        ("s3://", "no bucket"),
        ("s3://a", "no bucket"),
        ("s3://bucket//x", "empty part"),
        ("s3://bucket/../x", "'..'"),
        ("s3://bucket/a\nb", "unprintable"),
        ("s3://bucket/" + "x" * 800, "at most"),
        ("", "no such folder"),
        ("/", "cannot be used"),
        ("file://", "no such folder"),
        ("~nobody_mf/x", "no such folder"),
    ],
)
def test_mistakes(text, says):
    with pytest.raises(UserError, match=r"^run\.remote=") as error:
        parse(text)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        "s3://AKIAABCDEFGHIJKLMNOP:verysecretkey@bucket/x",
        "s3://verysecretkey@bucket/x",
        "gs://bucket/x?token=verysecretkey",
        "az://container/x?sv=2024&sig=verysecretkey",
        "abfss://container:verysecretkey@account/x",
        "https://account.blob.core.windows.net/c?sig=verysecretkey",
    ],
)
def test_keys_in_a_url_are_refused_and_not_shown(text):
    with pytest.raises(UserError) as error:
        parse(text)
    assert "verysecretkey" not in str(error.value)
    assert "AKIAABCDEFGHIJKLMNOP" not in str(error.value)


def test_secrets_are_masked(monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG")
    text = masked(
        "PUT http://user:pass1234@host/x?X-Amz-Credential=AKIAABCDEFGHIJKLMNOP%2F2026&X-Amz-Signature=abc123&part=3 "
        "with wJalrXUtnFEMI/K7MDENG, AccountKey=qwertz==; sig=zyx"
    )
    for secret in ("pass1234", "AKIAABCDEFGHIJKLMNOP", "abc123", "wJalr", "qwertz", "zyx"):
        assert secret not in text
    assert "part=3" in text
    assert "wJalr" not in str(RemoteError("failed", "key wJalrXUtnFEMI/K7MDENG is wrong"))


def test_a_missing_package_is_named_with_the_command(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "gcsfs" else object())
    with pytest.raises(
        UserError, match=r"run\.remote=gs://bucket/x: gs:// needs the package gcsfs.*pip install gcsfs"
    ):
        open_files(parse("gs://bucket/x"))


@pytest.mark.parametrize(
    ("name", "safe"),
    [
        ("metrics.jsonl", True),
        ("wandb/run-1/files/x.yaml", True),
        ("", False),
        ("/etc/passwd", False),
        ("../x", False),
        ("a/../../x", False),
        ("checkpoints/step_1/x", False),
        ("lock", False),
        (".bashrc", False),
        ("a\nb", False),
        ("a\\b", False),
    ],
)
def test_names_that_may_be_written_into_a_run(name, safe):
    assert is_safe(name) == safe
