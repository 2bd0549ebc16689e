"""What is taken for a credential, and what is not."""

from __future__ import annotations

import pytest

from sky.kit import secrets

FORTY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

CREDENTIALS = [
    ("AWS_SECRET_ACCESS_KEY", FORTY),
    ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
    ("aws_session_token", "FwoGZXIvYXdzEJr//////////wEaDK"),
    ("HF_TOKEN", "abc"),
    ("TOKEN", "hunter2"),
    ("token_2", "hunter2"),
    ("WANDB_API_KEY", "0123456789abcdef"),
    ("apiKey", "0123456789abcdef"),
    ("apikey", "0123456789abcdef"),
    ("clientSecret", "x"),
    ("SECRET", "x"),
    ("SECRET_KEY_BASE", "d3adb33f"),
    ("DJANGO_SECRET_KEY", "x"),
    ("DB_PASSWORD", "12345678"),
    ("PGPASSWORD", "postgres"),
    ("MYSQL_PWD", "x"),
    ("SSH_PASSPHRASE", "correct horse"),
    ("db.password", "x"),
    ("db-password", "x"),
    ("PRIVATE_KEY", "MIIEvQIBADANBgkq"),
    ("AZURE_ACCOUNT_KEY", "Eby8vdM02xNOcqF"),
    ("CREDENTIALS", '{"user": "x"}'),
    ("BASIC_AUTH", "user:pass1"),
    ("GITHUB_PAT", "x1"),
    ("SSH_KEY", "ssh-ed25519 AAAA"),
]
NOT_CREDENTIALS = [
    ("MAX_TOKENS", "512"),
    ("PWD", "/srv/project"),
    ("MAX_TOKEN_LENGTH", "512"),
    ("NUM_TOKEN", "5"),
    ("PAD_TOKEN_ID", "0"),
    ("EOS_TOKEN", "</s>"),
    ("PAD_TOKEN", "[PAD]"),
    ("TOKENIZERS_PARALLELISM", "false"),
    ("TOKENIZER", "bert-base-uncased"),
    ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "true"),
    ("TOKEN_FILE", "/run/secrets/token"),
    ("TOKEN_URL", "https://login.example.org/token"),
    ("PASSWORD_MIN_LENGTH", "8"),
    ("SECRET_NAME", "db-credentials"),
    ("SECRETS_MANAGER", "vault"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/gcp/key.json"),
    ("SSL_PRIVATE_KEY", "/etc/ssl/private/server.key"),
    ("SSH_KEY", "~/.ssh/id_ed25519"),
    ("AUTH", "none"),
    ("AUTH_MODE", "basic"),
    ("PROXY_AUTH", "basic"),
    ("PASSWORD", ""),
    ("DB_PASSWORD", "${DB_PASSWORD}"),
    ("DB_PASSWORD", "$PASS"),
    ("API_KEY", "<your key>"),
    ("PRIMARY_KEY", "id"),
    ("SORT_KEY", "created_at"),
    ("KEY", "value"),
    ("AUTHOR", "somebody"),
    ("OAUTHLIB_INSECURE_TRANSPORT", "1"),
    ("PATH", "/usr/bin:/bin"),
    ("OMP_NUM_THREADS", "4"),
    ("MONKEY", "banana"),
    ("SECRETARY", "somebody"),
]
SHAPES = [
    "AKIAIOSFODNN7EXAMPLE",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nabc",
    "ghp_" + "a1" * 18,
    "github_pat_" + "a1" * 20,
    "glpat-" + "a" * 20,
    "xoxb-0123456789-abc",
    "hf_" + "aB" * 17,
    "sk-proj-" + "a1B2" * 6,
    "AIza" + "a" * 35,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abc",
    "postgresql://admin:hunter2@db.example.org/prod",
    "redis://:hunter2@cache",
    "git+https://user:token@git.example.org/project",
]
PLAIN = [
    "https://example.org:8443/simple",
    "postgresql://db.example.org/prod",
    "postgresql://admin:$PASSWORD@db.example.org/prod",
    "scikit-learn==1.9.0",
    "sk-learn-contrib-and-a-long-name",
    "a-risk-assessment-of-many-words-in-a-row",
    "user@example.org",
    "-----BEGIN CERTIFICATE-----",
    "The token is kept elsewhere.",
]


@pytest.mark.parametrize(("name", "value"), CREDENTIALS)
def test_a_name_that_ends_in_the_word_for_a_secret_gives_it_away(name: str, value: str) -> None:
    found = list(secrets.find({"env": {name: value}}, "spec"))
    assert [field for field, _ in found] == [f"spec.env.{name}"]


@pytest.mark.parametrize(("name", "value"), NOT_CREDENTIALS)
def test_a_name_that_only_mentions_one_does_not(name: str, value: str) -> None:
    assert list(secrets.find({"env": {name: value}}, "spec")) == []


@pytest.mark.parametrize("value", SHAPES)
def test_a_value_gives_itself_away_by_its_shape(value: str) -> None:
    ((field, why),) = secrets.find({"pip": ["numpy", f"x {value}"]}, "image")
    assert field == "image.pip[1]"
    assert "looks like" in why


@pytest.mark.parametrize("value", PLAIN)
def test_other_values_do_not(value: str) -> None:
    assert list(secrets.find([value], "x")) == []


def test_the_value_is_never_said_and_numbers_are_let_through() -> None:
    value = {"a": {"password": "hunter2", "tokens": 5}, "b": [("x", "AKIAIOSFODNN7EXAMPLE")], "c": b"raw"}
    found = list(secrets.find(value, "config"))
    assert [field for field, _ in found] == ["config.a.password", "config.b[0][1]"]
    assert "hunter2" not in str(found)
    assert "AKIA" not in str(found)
