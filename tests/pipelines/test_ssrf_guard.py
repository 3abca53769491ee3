"""The SSRF guard: which callback URLs and addresses are allowed."""

import pytest

from pipelines.ssrf_guard import check_address_text, parse_callback_url
from storage.errors import Invalid


def refused(url: str, *, allow_private: bool = False) -> bool:
    try:
        parse_callback_url(url, allow_private=allow_private)
    except Invalid as error:
        return (error.code, list(error.errors)) == ("invalid_callback_url", ["/callback_url"])
    return False


@pytest.mark.spec("SUB-02")
@pytest.mark.parametrize(
    "url",
    [
        "http://receiver.example",
        "https://receiver.example/a/b?c=d&e=%20",
        "HTTPS://Receiver.Example:8443/",
        "http://under_score.example/",
        "http://does-not-resolve-yet.invalid/",
        "http://8.8.8.8/",
        "http://[2606:4700:4700::1111]:8080/",
        "http://bücher.example/straße?ü=1",
        "http://receiver.example./",
        "http://1password.example/",
        "http://single/",
    ],
)
def test_accepts_ordinary_urls(url: str) -> None:
    assert not refused(url)


@pytest.mark.spec("SUB-02")
@pytest.mark.parametrize(
    "url",
    [
        "",
        "receiver.example",
        "ftp://receiver.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "//receiver.example/",
        "http://",
        "http:///path",
        "http://:80/",
        "http://user@receiver.example/",
        "http://user:secret@receiver.example/",
        "http://@receiver.example/",
        "http://receiver.example:0/",
        "http://receiver.example:65536/",
        "http://receiver.example:port/",
        "http://rece iver.example/",
        "http://receiver.example/a b",
        "http://receiver.example\\@other.example/",
        "http://receiver.example/\r\nX: y",
        "http://receiver.example/\x00",
        " http://receiver.example/",
        "http://[::1",
        "http://[fe80::1%25eth0]/",
        "http://[receiver.example]/",
        "http://-receiver.example/",
        "http://a..example/",
        "http://" + "a" * 64 + ".example/",
        "http://" + "a." * 130 + "example/",
        "http://receiver.example/" + "a" * 5000,
        "http://1.2.3.4.5/",
        "http://256.1.1.1/",
        "http://1.2.3.999/",
        "http://receiver.123/",
        "http://receiver.0x1f/",
        "http://receiver%00.example/",
        "http://\ud800.example/",
        "http://receiver.example/\ud800",
        "http://receiver.example/" + "x" * 2048,
        "http://receiver.example/" + "é" * 400,
    ],
)
def test_rejects_invalid_callback_urls(url: str) -> None:
    assert refused(url)
    assert refused(url, allow_private=True)


LOOPBACK = [
    "http://127.0.0.1/",
    "http://127.1.2.3:8080/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://anything.localhost/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.1/",
    "http://017700000001/",
    "http://0177.0.0.01/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.0.0.1./",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://①②⑦.⓪.⓪.①/",
    "http://１２７。０。０。１/",
]


@pytest.mark.spec("SUB-03")
@pytest.mark.parametrize("url", LOOPBACK)
def test_rejects_loopback_in_every_spelling(url: str) -> None:
    assert refused(url)
    assert not refused(url, allow_private=True)


@pytest.mark.spec("SUB-03")
@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("10.1.2.3", "private"),
        ("100.64.0.1", "carrier-grade"),
        ("100.127.255.255", "carrier-grade"),
        ("127.255.255.255", "loopback"),
        ("169.254.169.254", "link-local"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.0.0.1", "reserved"),
        ("192.0.2.1", "documentation"),
        ("192.88.99.1", "6to4 relay"),
        ("192.168.1.1", "private"),
        ("198.18.0.1", "benchmark"),
        ("198.19.255.255", "benchmark"),
        ("198.51.100.1", "documentation"),
        ("203.0.113.1", "documentation"),
        ("224.0.0.1", "multicast"),
        ("239.255.255.255", "multicast"),
        ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("168.63.129.16", "metadata"),
        ("::", "unspecified"),
        ("::1", "loopback"),
        ("::7f00:1", "reserved"),
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:169.254.169.254", "link-local"),
        ("64:ff9b::a00:1", "private"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("64:ff9b:1::1", "local translation"),
        ("100::1", "discard"),
        ("2001::1", "Teredo"),
        ("2001:10::1", "reserved"),
        ("2001:db8::1", "documentation"),
        ("2002:7f00:1::", "6to4"),
        ("2002:808:808::1", "6to4"),
        ("3fff::1", "documentation"),
        ("fc00::1", "private"),
        ("fd00:ec2::254", "private"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("2606:4700::1%1", "link-local"),
        ("fec0::1", "site-local"),
        ("ff02::1", "multicast"),
        ("4000::1", "reserved"),
        ("nonsense", "malformed"),
    ],
)
def test_special_addresses_are_refused_with_their_reason(address: str, reason: str) -> None:
    assert check_address_text(address) == reason


@pytest.mark.spec("SUB-03")
@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.32.0.1",
        "198.20.0.1",
        "223.255.255.255",
        "1.1.1.1",
        "2606:4700:4700::1111",
        "2a00:1450::1",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
    ],
)
def test_public_addresses_are_not(address: str) -> None:
    assert check_address_text(address) is None


@pytest.mark.spec("SUB-02")
def test_a_callback_has_one_spelling_on_the_wire() -> None:
    callback = parse_callback_url(
        "HTTP://Bücher.Example:80/straße/%41?q=ü&x='1'#part", allow_private=False
    )
    assert callback.url == "http://xn--bcher-kva.example/stra%C3%9Fe/%41?q=%C3%BC&x='1'"
    assert callback.authority == "xn--bcher-kva.example"
    assert callback.target == "/stra%C3%9Fe/%41?q=%C3%BC&x='1'"
    assert callback.endpoint == "http://xn--bcher-kva.example/stra%C3%9Fe/%41"
    assert (
        parse_callback_url("http://0x8080808:8080", allow_private=False).url
        == "http://8.8.8.8:8080/"
    )
    six = parse_callback_url("https://[2606:4700:0:0::1]:443/", allow_private=False)
    assert (six.url, six.authority) == ("https://[2606:4700::1]/", "[2606:4700::1]")
