//! What kind of place an IP address is. Only [`AddressKind::Public`] may be reached through a name without a rule that
//! says `private: true`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A kind of address. Everything but `Public` can lead to the machine itself, to its own network or to nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressKind {
    /// Assigned to someone on the internet.
    Public,
    /// `0.0.0.0/8`, `::`: on most systems the machine itself.
    Unspecified,
    /// `127.0.0.0/8`, `::1`.
    Loopback,
    /// RFC 1918, unique local and site-local addresses.
    Private,
    /// `100.64.0.0/10`, between a provider and its customers (RFC 6598).
    Shared,
    /// `169.254.0.0/16`, `fe80::/10`.
    LinkLocal,
    /// Where clouds give credentials to their machines, in whichever range each put it.
    Metadata,
    /// Ranges for examples.
    Documentation,
    /// Ranges for measuring.
    Benchmark,
    /// To a group.
    Multicast,
    /// To everybody on the link.
    Broadcast,
    /// Anything else that is not assigned to someone on the internet.
    Reserved,
}

use AddressKind::{
    Benchmark, Broadcast, Documentation, LinkLocal, Loopback, Metadata, Multicast, Private, Public, Reserved, Shared,
    Unspecified,
};

/// The IPv4 special-purpose registry of IANA (RFC 6890 and its updates), narrower ranges before wider ones. Metadata
/// addresses are single ones that the clouds publish: AWS, Azure, Google and others; AWS containers; Alibaba; Azure's
/// host; Oracle.
const V4: &[(Ipv4Addr, u32, AddressKind)] = &[
    (Ipv4Addr::new(169, 254, 169, 254), 32, Metadata),
    (Ipv4Addr::new(169, 254, 170, 2), 32, Metadata),
    (Ipv4Addr::new(169, 254, 170, 23), 32, Metadata),
    (Ipv4Addr::new(100, 100, 100, 200), 32, Metadata),
    (Ipv4Addr::new(168, 63, 129, 16), 32, Metadata),
    (Ipv4Addr::new(192, 0, 0, 192), 32, Metadata),
    (Ipv4Addr::new(255, 255, 255, 255), 32, Broadcast),
    (Ipv4Addr::new(0, 0, 0, 0), 8, Unspecified),
    (Ipv4Addr::new(10, 0, 0, 0), 8, Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, Shared),
    (Ipv4Addr::new(127, 0, 0, 0), 8, Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, Reserved),
    (Ipv4Addr::new(192, 0, 2, 0), 24, Documentation),
    (Ipv4Addr::new(192, 88, 99, 0), 24, Reserved),
    (Ipv4Addr::new(192, 168, 0, 0), 16, Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, Benchmark),
    (Ipv4Addr::new(198, 51, 100, 0), 24, Documentation),
    (Ipv4Addr::new(203, 0, 113, 0), 24, Documentation),
    (Ipv4Addr::new(224, 0, 0, 0), 4, Multicast),
    (Ipv4Addr::new(240, 0, 0, 0), 4, Reserved),
];

/// The same for IPv6. The last row but one is the only block that is assigned to the public internet; what no row
/// covers is reserved.
const V6: &[(Ipv6Addr, u32, AddressKind)] = &[
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128, Metadata),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128, Metadata),
    (Ipv6Addr::UNSPECIFIED, 128, Unspecified),
    (Ipv6Addr::LOCALHOST, 128, Loopback),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, Private),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, LinkLocal),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, Private),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, Multicast),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, Documentation),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, Documentation),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, Benchmark),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, Reserved),
    (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3, Public),
    (Ipv6Addr::UNSPECIFIED, 0, Reserved),
];

impl AddressKind {
    /// The kind of an address. IPv6 addresses that carry an IPv4 one are what that one is: a packet to them ends there.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }

    /// With its article, for a sentence: "a loopback", "an unspecified".
    pub fn words(self) -> &'static str {
        match self {
            Public => "a public",
            Unspecified => "an unspecified",
            Loopback => "a loopback",
            Private => "a private",
            Shared => "a shared",
            LinkLocal => "a link-local",
            Metadata => "a metadata",
            Documentation => "a documentation",
            Benchmark => "a benchmark",
            Multicast => "a multicast",
            Broadcast => "a broadcast",
            Reserved => "a reserved",
        }
    }
}

fn of_v4(address: Ipv4Addr) -> AddressKind {
    let bits = address.to_bits();
    let row = V4.iter().find(|(net, length, _)| (bits ^ net.to_bits()).checked_shr(32 - length).unwrap_or(0) == 0);
    row.map_or(Public, |(_, _, kind)| *kind)
}

fn of_v6(address: Ipv6Addr) -> AddressKind {
    if address != Ipv6Addr::UNSPECIFIED && address != Ipv6Addr::LOCALHOST {
        let mut carried = carried(address).into_iter().flatten().map(of_v4).peekable();
        if carried.peek().is_some() {
            return carried.find(|kind| *kind != Public).unwrap_or(Public);
        }
    }
    let bits = address.to_bits();
    let row = V6.iter().find(|(net, length, _)| (bits ^ net.to_bits()).checked_shr(128 - length).unwrap_or(0) == 0);
    row.map_or(Reserved, |(_, _, kind)| *kind)
}

/// The IPv4 addresses inside an IPv6 one: at most two, and two only in Teredo.
fn carried(address: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let join = |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        // Compatible (RFC 4291), mapped, translated (RFC 2765), and NAT64's well-known prefix (RFC 6052).
        [0, 0, 0, 0, 0, 0, high, low]
        | [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => [join(high, low), None],
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => [join(high, low), None],
        // Teredo (RFC 4380): the server, and the client with all bits flipped.
        [0x2001, 0, server_high, server_low, _, _, high, low] => [join(server_high, server_low), join(!high, !low)],
        // ISATAP (RFC 5214), under any prefix.
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => [join(high, low), None],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind(text: &str) -> AddressKind {
        AddressKind::of(text.parse().unwrap())
    }

    #[test]
    fn every_special_range_is_told_from_the_public_ones_beside_it() {
        for (text, want) in [
            ("0.0.0.0", Unspecified),
            ("0.255.255.255", Unspecified),
            ("1.0.0.0", Public),
            ("9.255.255.255", Public),
            ("10.0.0.1", Private),
            ("11.0.0.0", Public),
            ("100.63.255.255", Public),
            ("100.64.0.0", Shared),
            ("100.100.100.200", Metadata),
            ("100.127.255.255", Shared),
            ("100.128.0.0", Public),
            ("126.255.255.255", Public),
            ("127.0.0.1", Loopback),
            ("127.255.255.255", Loopback),
            ("128.0.0.0", Public),
            ("168.63.129.16", Metadata),
            ("168.63.129.17", Public),
            ("169.254.0.1", LinkLocal),
            ("169.254.169.254", Metadata),
            ("172.15.255.255", Public),
            ("172.16.0.0", Private),
            ("172.31.255.255", Private),
            ("172.32.0.0", Public),
            ("192.0.0.1", Reserved),
            ("192.0.2.1", Documentation),
            ("192.168.1.1", Private),
            ("192.169.0.0", Public),
            ("198.17.255.255", Public),
            ("198.18.0.0", Benchmark),
            ("198.19.255.255", Benchmark),
            ("198.20.0.0", Public),
            ("198.51.100.7", Documentation),
            ("203.0.113.7", Documentation),
            ("223.255.255.255", Public),
            ("224.0.0.1", Multicast),
            ("240.0.0.1", Reserved),
            ("255.255.255.254", Reserved),
            ("255.255.255.255", Broadcast),
            ("8.8.8.8", Public),
            ("::", Unspecified),
            ("::1", Loopback),
            ("::2", Unspecified),
            ("fc00::1", Private),
            ("fdff::1", Private),
            ("fd00:ec2::254", Metadata),
            ("fe80::1", LinkLocal),
            ("fec0::1", Private),
            ("ff02::1", Multicast),
            ("2001:db8::1", Documentation),
            ("3fff::1", Documentation),
            ("2001:2::1", Benchmark),
            ("2001:4860:4860::8888", Public),
            ("2606:4700::1111", Public),
            ("4000::1", Reserved),
            ("100::1", Reserved),
            ("64:ff9b:1::808:808", Reserved),
        ] {
            assert_eq!(kind(text), want, "{text}");
        }
    }

    #[test]
    fn an_address_inside_an_address_counts() {
        for (text, want) in [
            ("::ffff:127.0.0.1", Loopback),
            ("::ffff:8.8.8.8", Public),
            ("::127.0.0.1", Loopback),
            ("::8.8.8.8", Public),
            ("::ffff:0:10.0.0.1", Private),
            ("64:ff9b::169.254.169.254", Metadata),
            ("64:ff9b::8.8.8.8", Public),
            ("2002:7f00:1::", Loopback),
            ("2002:808:808::", Public),
            // Server 8.8.8.8; the client is 127.0.0.1 and then 8.8.4.4, with flipped bits.
            ("2001:0:808:808:0:0:80ff:fffe", Loopback),
            ("2001:0:808:808:0:0:f7f7:fbfb", Public),
            ("2001:0:a00:1:0:0:f7f7:fbfb", Private),
            ("2606:4700::5efe:10.0.0.1", Private),
            ("2606:4700::200:5efe:8.8.8.8", Public),
        ] {
            assert_eq!(kind(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_embedded_address_is_what_it_is_alone(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let nat64 = Ipv6Addr::from_bits(0x64_ff9b << 96 | u128::from(bits));
            prop_assert_eq!(AddressKind::of(v4.to_ipv6_mapped().into()), AddressKind::of(v4.into()));
            prop_assert_eq!(AddressKind::of(nat64.into()), AddressKind::of(v4.into()));
        }

        #[test]
        fn the_standard_library_never_knows_better(bits: u32) {
            let v4 = Ipv4Addr::from_bits(bits);
            let special = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_broadcast()
                || v4.is_documentation() || v4.is_multicast() || v4.is_unspecified();
            prop_assert!(!special || AddressKind::of(v4.into()) != Public);
        }
    }
}
