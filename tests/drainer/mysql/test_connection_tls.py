"""TLS to a real MariaDB: who asked for it gets it, from whom he named, with the files as they are now."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from binlog_playground.cluster.mariadb import MariaDbServer
from drainer.mysql.connection import Target, connect
from tests import certificates
from tidb_binlog.errors import ConfigError, Unavailable
from tidb_binlog.net.tls import ClientTls, TlsConfig

pytestmark = pytest.mark.integration

CA = certificates.authority("downstream authority")
OTHER_CA = certificates.authority("another authority")


class TlsMariaDb(MariaDbServer):
    """Speaks TLS, and has a user who must show a certificate."""

    files: TlsConfig

    def _options(self) -> list[str]:
        files = self.files
        return [
            *super()._options(),
            f"--ssl-ca={files.ca}",
            f"--ssl-cert={files.cert}",
            f"--ssl-key={files.key}",
        ]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsMariaDb]:
    server = TlsMariaDb()
    server.files = certificates.write(
        tmp_path_factory.mktemp("tls"),
        ca=[CA],
        node=certificates.leaf("db.example", ca=CA, sans=["127.0.0.1"]),
    )
    server.start(tmp_path_factory.mktemp("db"))
    try:
        connection = server.connect()
        with connection.cursor() as cursor:
            cursor.execute("CREATE USER 'shown'@'%' IDENTIFIED BY 'pw' REQUIRE X509")
        connection.close()
        yield server
    finally:
        server.stop()


def target_of(server: TlsMariaDb, files: TlsConfig | None) -> Target:
    tls = ClientTls(files, use="downstream") if files else None
    return Target(server.host, server.port, server.user, server.password, tls=tls)


def cipher(target: Target) -> str:
    connection = connect(target)
    try:
        ((_, found),) = connection.rows(b"SHOW STATUS LIKE 'Ssl_cipher'")
        return str(found)
    finally:
        connection.close()


def test_off_and_on(server: TlsMariaDb, tmp_path: Path) -> None:
    assert cipher(target_of(server, None)) == ""
    authority_alone = certificates.write(tmp_path, ca=[CA], node=None)
    assert cipher(target_of(server, authority_alone)) != ""


def test_a_user_who_must_show_a_certificate(server: TlsMariaDb, tmp_path: Path) -> None:
    files = certificates.write(tmp_path, ca=[CA], node=certificates.leaf("drainer", ca=CA))
    target = replace(target_of(server, files), user="shown", password="pw")
    assert cipher(target) != ""
    without = certificates.write(tmp_path / "without", ca=[CA], node=None)
    with pytest.raises(Exception, match="refused the login"):
        connect(replace(target_of(server, without), user="shown", password="pw"))


@pytest.mark.parametrize(
    ("ca", "allowed", "word"),
    [
        (OTHER_CA, (), "CERTIFICATE_VERIFY_FAILED"),
        (CA, ("other.example",), 'CN "db.example" is not in cert-allowed-cn'),
    ],
)
def test_another_server_is_not_used(
    server: TlsMariaDb, tmp_path: Path, ca: certificates.Pair, allowed: tuple[str, ...], word: str
) -> None:
    files = certificates.write(tmp_path, ca=[ca], node=None, allowed_cn=allowed)
    with pytest.raises(Unavailable, match=word) as raised:
        connect(target_of(server, files))
    assert "syncer.to.security" in raised.value.hint
    assert server.password not in str(raised.value)


def test_the_name_that_was_asked_for_is_used(server: TlsMariaDb, tmp_path: Path) -> None:
    files = certificates.write(tmp_path, ca=[CA], node=None, allowed_cn=["db.example"])
    assert cipher(target_of(server, files)) != ""


def test_the_hosts_name_must_be_in_the_certificate(server: TlsMariaDb, tmp_path: Path) -> None:
    files = certificates.write(tmp_path, ca=[CA], node=None)
    with pytest.raises(Unavailable, match="certificate is not valid for"):
        connect(replace(target_of(server, files), host="localhost"))


def test_a_server_without_tls_is_not_used(mariadb: MariaDbServer, tmp_path: Path) -> None:
    files = certificates.write(tmp_path, ca=[CA], node=None)
    plain = Target(mariadb.host, mariadb.port, mariadb.user, mariadb.password)
    connection = connect(plain)
    ((has_tls,),) = connection.rows(b"SELECT @@have_ssl")
    connection.close()
    with pytest.raises(Unavailable):
        connect(replace(plain, tls=ClientTls(files, use="downstream")))
    assert has_tls in ("YES", "DISABLED")


def test_files_are_read_again_at_the_next_connect(server: TlsMariaDb, tmp_path: Path) -> None:
    files = certificates.write(tmp_path, ca=[OTHER_CA], node=None)
    target = target_of(server, files)
    with pytest.raises(Unavailable):
        connect(target)
    certificates.write(tmp_path, ca=[CA], node=None)
    assert cipher(target) != ""
    (tmp_path / "ca.pem").write_text("half a fi")
    assert cipher(target) != "", "the last usable ones stay"


def test_a_list_of_names_without_a_name_is_refused(tmp_path: Path) -> None:
    files = certificates.write(tmp_path, ca=[CA], node=None, allowed_cn=[" "])
    with pytest.raises(ConfigError, match="holds no name"):
        ClientTls(files, use="downstream")
