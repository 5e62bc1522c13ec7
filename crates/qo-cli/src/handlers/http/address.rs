//! Which addresses a request may go to.
//!
//! Whoever can choose what a worker connects to must not reach what only the worker can see: services on its own machine, the metadata
//! service of its cloud, the private network. So only addresses of the public internet pass, and addresses that carry another
//! one inside are judged by both. The check is on the very addresses that a connection is made to, after the name was resolved, so
//! that a name that changes its mind between a check and a connection gains nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address belongs to the public internet.
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// The networks of IPv4 that are not the public internet, with the lengths of their prefixes.
const SPECIAL_V4: [(Ipv4Addr, u32); 15] = [
    // This host.
    (Ipv4Addr::UNSPECIFIED, 8),
    // Private.
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    // Shared by the customers of a carrier.
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    // Loopback.
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local, with the metadata services of clouds.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // Assignments of protocols, and relays of 6to4.
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    // Examples.
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // Benchmarks.
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    // Multicast.
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    // Reserved, and broadcast.
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The networks inside of the global unicast space of IPv6 that are not the public internet.
const SPECIAL_V6: [(Ipv6Addr, u32); 3] = [
    // Assignments of protocols; one of them is Teredo, which hides an IPv4 address.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    // Examples.
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

fn is_public_v4(address: Ipv4Addr) -> bool {
    let within = |(network, length): (Ipv4Addr, u32)| {
        (address.to_bits() ^ network.to_bits()) >> (32 - length) == 0
    };
    !SPECIAL_V4.into_iter().any(within)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let within = |(network, length): (Ipv6Addr, u32)| {
        (address.to_bits() ^ network.to_bits()) >> (128 - length) == 0
    };
    let segments = address.segments();
    let leads_to_public = match segments {
        // The well-known prefix of NAT64 leads to the IPv4 address at the end.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return is_public_v4(embedded(high, low)),
        // 6to4 leads to the IPv4 address after the prefix.
        [0x2002, high, low, ..] => is_public_v4(embedded(high, low)),
        // All of the global unicast space that there is. What lies outside is loopback, unspecified, mapped or compatible IPv4,
        // link-local, site-local, unique-local, multicast, local NAT64, or not assigned.
        [0x2000..=0x3fff, ..] => !SPECIAL_V6.into_iter().any(within),
        _ => false,
    };
    leads_to_public && !is_isatap(segments)
}

/// Whether the address is a tunnel to the IPv4 address at its end, by the mark before it.
fn is_isatap(segments: [u16; 8]) -> bool {
    matches!(segments, [_, _, _, _, 0 | 0x200, 0x5efe, _, _])
}

fn embedded(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_internet_passes() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "172.15.0.1",
            "172.32.0.1",
            "169.253.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001:800::200e",
            "2001:4860:4860::8888",
            "64:ff9b::8.8.8.8",
            "2002:808:808::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::8.8.8.8",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:8.8.8.8",
            "64:ff9b::127.0.0.1",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::8.8.8.8",
            "100::1",
            "2001::1",
            "2001:0:808:808::1",
            "2001:2::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "2002:a00:1::1",
            "2002:c0a8:1::1",
            "2600:1234:0:1:0:5efe:a00:1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456:789a::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
