use super::*;

/// Addresses of IPv4 that nobody may be sent to: first and last of each range, and what lies in them.
pub(crate) const INNER: [&str; 40] = [
    "0.0.0.0",
    "0.0.0.1",
    "0.255.255.255",
    "10.0.0.0",
    "10.0.0.1",
    "10.255.255.255",
    "100.64.0.0",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.0",
    "127.0.0.1",
    "127.1.2.3",
    "127.255.255.255",
    "168.63.129.16",
    "169.254.0.0",
    "169.254.169.254",
    "169.254.170.2",
    "169.254.255.255",
    "172.16.0.0",
    "172.17.0.1",
    "172.31.255.255",
    "192.0.0.0",
    "192.0.0.192",
    "192.0.0.255",
    "192.0.2.1",
    "192.31.196.1",
    "192.88.99.1",
    "192.168.0.0",
    "192.168.1.1",
    "192.168.255.255",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.7",
    "203.0.113.7",
    "224.0.0.1",
    "239.255.255.250",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.254",
    "255.255.255.255",
];

pub(crate) const INNER_IN_V6: [&str; 24] = [
    "::",
    "::1",
    "::7f00:1",
    "64:ff9b:1::a00:1",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:808:808::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "fe80::1",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
    "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
];

const OUTER: [&str; 24] = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.15",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2001:200::1",
    "2001:4860:4860::8888",
    "2606:4700::1111",
    "2a00:1450::1",
    "3ffe::1",
];

/// Every way to write an address of IPv4 in a URL that some parser understands.
fn spellings(address: Ipv4Addr) -> Vec<String> {
    let [a, b, c, d] = address.octets();
    let number = address.to_bits();
    let (low, lower) = (number & 0x00ff_ffff, number & 0xffff);
    let mapped = address.to_ipv6_mapped().segments();
    vec![
        format!("{a}.{b}.{c}.{d}"),
        format!("{a}.{b}.{c}.{d}."),
        format!("{number}"),
        format!("0x{number:x}"),
        format!("0X{number:X}"),
        format!("0{number:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("{a}.{low}"),
        format!("{a}.{b}.{lower}"),
        format!("0x{a:x}.{b}.{lower}"),
        format!("%3{}{}.{b}.{c}.{d}", a.to_string().as_bytes()[0] - b'0', &a.to_string()[1..]),
        format!("{a}。{b}｡{c}．{d}"),
        format!("[::ffff:{a}.{b}.{c}.{d}]"),
        format!("[::ffff:{:x}:{:x}]", mapped[6], mapped[7]),
        format!("[0:0:0:0:0:ffff:{:x}:{:x}]", mapped[6], mapped[7]),
        format!("[::{a}.{b}.{c}.{d}]"),
        format!("[64:ff9b::{a}.{b}.{c}.{d}]"),
        format!("[2002:{:x}:{:x}::1]", mapped[6], mapped[7]),
        format!("[::ffff:0:{a}.{b}.{c}.{d}]"),
    ]
}

/// Every forbidden URL that these tables make.
pub(crate) fn forbidden_urls(port: u16) -> Vec<String> {
    let v4 = INNER.iter().flat_map(|address| spellings(address.parse().unwrap()));
    let v6 = INNER_IN_V6.iter().map(|address| format!("[{address}]"));
    v4.chain(v6).map(|host| format!("http://{host}:{port}/hook")).collect()
}

/// H60: over 800 spellings of inner addresses, none of which passes.
#[test]
fn no_spelling_of_an_inner_address_passes() {
    let guard = Guard::default();
    let urls = forbidden_urls(8080);
    assert!(urls.len() > 800, "{}", urls.len());
    for url in urls {
        let refused = guard.check(&url).expect_err(&url);
        assert_eq!(refused, Forbidden::Address, "{url}");
    }
}

/// H60: the edges of the ranges, seen from outside.
#[test]
fn outer_addresses_pass() {
    let guard = Guard::default();
    for address in OUTER {
        let address: IpAddr = address.parse().unwrap();
        assert!(guard.allows(address), "{address}");
        let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
        assert!(guard.check(&format!("https://{host}/hook?x=1")).is_ok(), "{address}");
    }
    for url in
        ["https://hooks.example/", "http://hooks.example:8080/a/b?c#d", "https://größe.example/", "HTTPS://A.example"]
    {
        assert!(guard.check(url).is_ok(), "{url}");
    }
}

/// H60.
#[test]
fn what_is_not_an_address_of_the_web_is_refused() {
    let guard = Guard::default();
    let long = format!("https://a.example/{}", "x".repeat(2048));
    let either = Forbidden::Scheme { is_https_only: false };
    let table = [
        ("", Forbidden::Malformed),
        ("hooks.example", Forbidden::Malformed),
        ("/path", Forbidden::Malformed),
        ("//hooks.example/", Forbidden::Malformed),
        ("http://", Forbidden::Malformed),
        ("http://:80/", Forbidden::Malformed),
        ("http://a b.example/", Forbidden::Malformed),
        (" http://a.example/", Forbidden::Malformed),
        ("http://a.example/\n", Forbidden::Malformed),
        ("ht\ttp://a.example/", Forbidden::Malformed),
        ("http://a.example/\u{7f}", Forbidden::Malformed),
        ("http://a.example:99999/", Forbidden::Malformed),
        ("http://256.256.256.256/", Forbidden::Malformed),
        ("http://1.2.3.4.5/", Forbidden::Malformed),
        ("http://[::1/", Forbidden::Malformed),
        ("http://[fe80::1%25eth0]/", Forbidden::Malformed),
        ("http://[::ffff:127.0.0.1%eth0]/", Forbidden::Malformed),
        ("http://a.example:0/", Forbidden::Port { port: 0 }),
        ("ftp://a.example/", either),
        ("file:///etc/passwd", either),
        ("gopher://a.example/", either),
        ("unix:/run/docker.sock", either),
        ("data:,x", either),
        ("javascript:alert(1)", either),
        ("http://user@a.example/", Forbidden::Credentials),
        ("http://user:canary@a.example/", Forbidden::Credentials),
        ("http://:canary@a.example/", Forbidden::Credentials),
        ("http://a.example@127.0.0.1/", Forbidden::Credentials),
        (long.as_str(), Forbidden::TooLong),
    ];
    for (url, forbidden) in table {
        assert_eq!(guard.check(url), Err(forbidden), "{url}");
    }
    assert_eq!(guard.check(r"http://127.0.0.1\@a.example/"), Err(Forbidden::Address), "the host ends at a backslash");
}

#[test]
fn ports_and_encryption_can_be_demanded() {
    let guard = Guard::default().ports([443, 8443]).https_only();
    assert!(guard.check("https://a.example/").is_ok() && guard.check("https://a.example:8443/").is_ok());
    assert_eq!(guard.check("https://a.example:22/"), Err(Forbidden::Port { port: 22 }));
    assert_eq!(guard.check("http://a.example:443/"), Err(Forbidden::Scheme { is_https_only: true }));
}

/// H60: who delivers inside opens what he needs, and never a cloud's metadata by the way.
#[test]
fn inner_networks_can_be_opened_but_metadata_only_by_its_address() {
    let private = Guard::default().allow_private();
    for (address, is_allowed) in [
        ("10.1.2.3", true),
        ("127.0.0.1", true),
        ("::1", true),
        ("fd12::1", true),
        ("192.168.7.7", true),
        ("8.8.8.8", true),
        ("169.254.169.254", false),
        ("169.254.1.1", false),
        ("fd00:ec2::254", false),
        ("100.100.100.200", false),
        ("::ffff:10.1.2.3", false),
        ("0.0.0.0", false),
        ("255.255.255.255", false),
    ] {
        assert_eq!(private.allows(address.parse().unwrap()), is_allowed, "{address}");
    }
    let wide = Guard::default().allow_networks(["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()]);
    assert!(wide.allows("169.254.1.1".parse().unwrap()) && wide.allows("::ffff:10.1.2.3".parse().unwrap()));
    assert!(METADATA.iter().all(|network| !wide.allows(known(network).start)));
    let meant = Guard::default().allow_networks(["169.254.169.254".parse().unwrap()]);
    assert!(meant.allows("169.254.169.254".parse().unwrap()) && !meant.allows("169.254.169.253".parse().unwrap()));
}

#[test]
fn a_network_is_an_address_and_bits() {
    for (text, shown) in [("10.0.0.0/8", "10.0.0.0/8"), ("::1", "::1/128"), ("1.2.3.4", "1.2.3.4/32"), ("::/0", "::/0")]
    {
        assert_eq!(text.parse::<Network>().unwrap().to_string(), shown);
    }
    for text in ["", "10.0.0.0/33", "::/129", "10/8", "10.0.0.0/", "10.0.0.0/-1", "a.example/8"] {
        assert_eq!(text.parse::<Network>().unwrap_err().problems()[0].field(), "network", "{text}");
    }
    let tables = [&INNER_V4[..], &[OUTER_V6], &INNER_V6, &PRIVATE, &METADATA].concat();
    assert!(tables.iter().all(|network| known(network).to_string() == **network));
}
