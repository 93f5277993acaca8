//! The rules about hosts, as a specification.

use super::*;
use crate::layer::{Layer, Origin, Scope};
use crate::limits::LimitRules;
use proptest::prelude::*;
use url::Url;

fn rule(text: &str) -> HostRule {
    HostRule::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

fn private(text: &str) -> HostRule {
    rule(text).private(true).unwrap()
}

fn layer(scope: Scope, allow: Option<Vec<HostRule>>) -> Layer {
    Layer {
        origin: Origin::new(".harness/harness.md", scope),
        fs: None,
        network: allow.map(|allow| NetworkRules { allow }),
        exec: None,
        env: None,
        services: None,
        secrets: None,
        limits: LimitRules::default(),
    }
}

fn grant(allow: Vec<HostRule>) -> Grant {
    Grant::new(vec![layer(Scope::Project, Some(allow))])
}

fn target(url: &str) -> Target {
    Target::of(&Url::parse(url).unwrap()).unwrap()
}

fn covers(text: &str, url: &str) -> bool {
    grant(vec![rule(text)]).decide_target(&target(url)).is_ok()
}

fn reaches(rule: HostRule, url: &str, address: &str) -> bool {
    grant(vec![rule]).decide_address(&target(url), address.parse().unwrap()).is_ok()
}

#[test]
fn a_name_is_that_host_only() {
    assert!(covers("example.com", "https://example.com/"));
    for url in [
        "https://www.example.com/",
        "https://notexample.com/",
        "https://example.com.evil.test/",
        "https://example.co/",
        "https://com/",
        "https://example-com/",
    ] {
        assert!(!covers("example.com", url), "{url}");
    }
}

#[test]
fn a_star_in_front_is_the_subdomains_and_not_the_domain() {
    for url in ["https://a.example.com/", "https://a.b.example.com/"] {
        assert!(covers("*.example.com", url), "{url}");
    }
    for url in
        ["https://example.com/", "https://notexample.com/", "https://a.example.com.evil.test/", "https://xexample.com/"]
    {
        assert!(!covers("*.example.com", url), "{url}");
    }
}

#[test]
fn a_star_is_any_name_and_no_address() {
    for url in ["https://example.com/", "http://a.b.c.test/"] {
        assert!(covers("*", url), "{url}");
    }
    for url in ["http://8.8.8.8/", "http://127.0.0.1/", "http://[2606:4700::1111]/", "http://2130706433/"] {
        assert!(!covers("*", url), "{url}");
    }
    assert!(!covers("*", "https://example.com:8443/"));
    assert!(covers("*:8443", "https://example.com:8443/"));
}

#[test]
fn case_a_final_dot_and_punycode_make_no_difference() {
    for (text, url) in [
        ("Example.COM", "https://eXample.com/"),
        ("example.com.", "https://example.com/"),
        ("example.com", "https://example.com./"),
        ("*.example.com.", "https://A.EXAMPLE.com./"),
        ("bücher.example", "https://xn--bcher-kva.example/"),
        ("xn--bcher-kva.example", "https://BÜCHER.example/"),
        ("example.com", "https://ｅｘａｍｐｌｅ.com/"),
        ("example.com", "https://example。com/"),
        ("example.com", "https://ex%61mple.com/"),
    ] {
        assert!(covers(text, url), "{text} {url}");
    }
    // Cyrillic letters that look the same are another name.
    assert!(!covers("example.com", "https://ехample.com/"));
}

#[test]
fn ports_are_80_and_443_unless_a_rule_names_one() {
    for (text, url, want) in [
        ("example.com", "http://example.com/", true),
        ("example.com", "https://example.com/", true),
        ("example.com", "http://example.com:443/", true),
        ("example.com", "http://example.com:8080/", false),
        ("example.com:8080", "http://example.com:8080/", true),
        ("example.com:8080", "http://example.com/", false),
        ("example.com:8080", "http://example.com:80801/", false),
        ("example.com:443", "https://example.com/", true),
        ("example.com:443", "http://example.com/", false),
    ] {
        let Ok(url) = Url::parse(url) else {
            assert!(!want);
            continue;
        };
        assert_eq!(grant(vec![rule(text)]).decide_target(&Target::of(&url).unwrap()).is_ok(), want, "{text} {url}");
    }
}

#[test]
fn an_address_matches_only_its_own_rule_in_whatever_spelling() {
    for url in [
        "http://127.0.0.1/",
        "http://127.0.0.1./",
        "http://0x7f.1/",
        "http://2130706433/",
        "http://017700000001/",
        "http://0x7f000001/",
        "http://127.1/",
        "http://①②⑦.0.0.1/",
        "http://%31%32%37.0.0.1/",
    ] {
        assert!(covers("127.0.0.1", url), "{url}");
        assert!(!covers("*", url), "{url}");
        assert!(!covers("127.0.0.2", url), "{url}");
        assert!(reaches(rule("127.0.0.1"), url, "127.0.0.1"), "{url}");
        assert!(!reaches(rule("127.0.0.1"), url, "127.0.0.2"), "{url}");
    }
    assert!(covers("[::1]", "http://[0:0:0:0:0:0:0:1]/"));
    assert!(covers("[::1]:8080", "http://[::1]:8080/"));
    assert!(!covers("[::1]:8080", "http://[::1]/"));
}

#[test]
fn a_mapped_address_is_not_the_one_inside_it() {
    assert!(!covers("127.0.0.1", "http://[::ffff:127.0.0.1]/"));
    assert!(!covers("*", "http://[::ffff:127.0.0.1]/"));
    assert!(covers("[::ffff:127.0.0.1]", "http://[::ffff:127.0.0.1]/"));
    assert!(covers("[::ffff:127.0.0.1]", "http://[::ffff:7f00:1]/"));
}

#[test]
fn an_address_rule_grants_that_address_even_where_it_is_private() {
    assert!(reaches(rule("169.254.169.254"), "http://169.254.169.254/", "169.254.169.254"));
    assert!(!reaches(rule("169.254.169.254"), "http://169.254.169.254/", "8.8.8.8"));
}

#[test]
fn a_name_leads_to_public_addresses_only_unless_the_rule_says_private() {
    for address in [
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "100.64.0.1",
        "198.18.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "224.0.0.1",
        "192.0.2.1",
        "::1",
        "::",
        "fd00::1",
        "fe80::1",
        "fec0::1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "168.63.129.16",
    ] {
        assert!(!reaches(rule("example.com"), "http://example.com/", address), "{address}");
        assert!(!reaches(rule("*"), "http://example.com/", address), "{address}");
        assert!(reaches(private("example.com"), "http://example.com/", address), "{address}");
        assert!(reaches(private("*.com"), "http://example.com/", address), "{address}");
    }
    for address in ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"] {
        assert!(reaches(rule("example.com"), "http://example.com/", address), "{address}");
    }
    assert!(!reaches(private("example.com"), "http://other.com/", "8.8.8.8"));
    assert!(!reaches(private("10.0.0.1"), "http://example.com/", "10.0.0.1"), "an address rule says nothing of names");
}

#[test]
fn every_layer_must_say_private() {
    let url = target("http://build.internal/");
    let layers = |outer: HostRule, inner: HostRule| {
        Grant::new(vec![layer(Scope::Project, Some(vec![outer])), layer(Scope::Artifact, Some(vec![inner]))])
    };
    let address = "10.0.0.1".parse().unwrap();
    assert_eq!(layers(private("build.internal"), private("build.internal")).decide_address(&url, address), Ok(()));
    assert_eq!(
        layers(private("build.internal"), rule("build.internal")).decide_address(&url, address),
        Err(Refusal::new(
            "the host `build.internal` leads to a private address, which needs a rule with `private: true`",
            "add `{ host: \"build.internal:80\", methods: [GET], scheme: http, private: true }` to `capabilities.network` in `.harness/harness.md`",
        ))
    );
}

#[test]
fn an_empty_list_and_no_list_are_nothing() {
    let asked = target("https://api.example.com/");
    let refusal = Refusal::new(
        "the host `api.example.com` is not allowed",
        "add `{ host: \"api.example.com:443\", methods: [GET], scheme: https }` to `network.allowed_domains` in `.harness/harness.md`",
    );
    assert_eq!(grant(vec![rule("api.example.com")]).decide_target(&asked), Ok(()));
    assert_eq!(grant(vec![]).decide_target(&asked), Err(refusal.clone()));
    assert_eq!(Grant::new(vec![layer(Scope::Project, None)]).decide_target(&asked), Err(refusal.clone()));
    assert_eq!(Grant::new(vec![]).decide_target(&asked), Err(refusal.clone()));
    assert_eq!(grant(vec![]).decide_address(&asked, "8.8.8.8".parse().unwrap()), Err(refusal));
}

#[test]
fn every_layer_must_agree_and_a_silent_one_leaves_it_to_the_others() {
    let asked = target("https://api.example.com/");
    let project = layer(Scope::Project, Some(vec![rule("*.example.com")]));
    let silent = layer(Scope::Artifact, None);
    let narrow = layer(Scope::Source("plugins/acme".to_owned()), Some(vec![rule("docs.example.com")]));
    assert_eq!(Grant::new(vec![project.clone(), silent]).decide_target(&asked), Ok(()));
    assert_eq!(
        Grant::new(vec![project, narrow]).decide_target(&asked),
        Err(Refusal::new(
            "the host `api.example.com` is not allowed",
            "add `{ host: \"api.example.com:443\", methods: [GET], scheme: https }` to `sandbox.sources.plugins/acme.network` in `.harness/harness.md`",
        ))
    );
}

#[test]
fn what_is_not_a_host_is_no_rule() {
    for text in [
        "",
        " ",
        "exa mple.com",
        "example.com ",
        "\texample.com",
        "https://example.com",
        "example.com/",
        "example.com/path",
        "user@example.com",
        "user:pw@example.com",
        "**",
        "*.*",
        "*example.com",
        "example.*",
        "a.*.com",
        "*.",
        ".",
        "..",
        "a..b",
        ".example.com",
        "example.com..",
        "-a.com",
        "a-.com",
        "a!b.com",
        "ex%61mple.com",
        "example.com:",
        "example.com:0",
        "example.com:65536",
        "example.com:+80",
        "example.com:80:80",
        "::1",
        "[::1",
        "[::1]x",
        "[::1]:",
        "[fe80::1%eth0]",
        "[1.2.3.4]",
        "*.1.2.3.4",
        "*.1",
        "*.[::1]",
        "0x7f.1",
        "2130706433",
        "127.1",
        "1.2.3.4.5",
        "1.2.3.256",
        "example.com?x",
        "example.com#x",
        "example.com\\x",
        "example.com\0",
    ] {
        let error = HostRule::parse(text).expect_err(text);
        assert!(error.starts_with('`') && !error.contains('\n') && !error.ends_with('.'), "{error}");
    }
    // Who wrote it learns what is to be written instead.
    for (text, why) in [
        ("", "it is empty"),
        ("é".repeat(513).as_str(), "it is over 1,024 bytes"),
        ("exa mple.com", "there is white space in it"),
        ("https://example.com", "leave out the scheme"),
        ("user@example.com", "leave out the user name"),
        ("example.com/path", "leave out the path"),
        ("*.*", "`*` stands alone or in front, as in `*.example.com`"),
        ("[::1", "the bracket is not closed"),
        ("::1", "an IPv6 address goes in brackets: `[::1]`"),
    ] {
        assert_eq!(HostRule::parse(text), Err(format!("`{}` is not a host: {why}", shown(text))));
    }
    let label = "a".repeat(63);
    assert!(HostRule::parse(&format!("{label}.com")).is_ok());
    assert!(HostRule::parse(&format!("{label}a.com")).is_err());
    let longest = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(longest.len(), 253);
    assert!(HostRule::parse(&longest).is_ok());
    assert!(HostRule::parse(&format!("{longest}a")).is_err());
    assert!(HostRule::parse(&"é".repeat(100_000)).is_err());
    assert!(rule("*").private(true).is_err());
    assert!(rule("*").private(false).is_ok());
}

#[test]
fn a_url_that_cannot_be_asked_has_no_target() {
    let of = |url: &str| Target::of(&Url::parse(url).unwrap());
    assert_eq!(of("ftp://example.com/"), Err(NoTarget::Scheme("ftp".to_owned())));
    assert_eq!(of("file:///etc/passwd"), Err(NoTarget::Scheme("file".to_owned())));
    assert_eq!(of("data:text/plain,x"), Err(NoTarget::Scheme("data".to_owned())));
    for url in ["https://user@example.com/", "https://:pw@example.com/", "https://example.com:x@evil.test/"] {
        assert_eq!(of(url), Err(NoTarget::Credentials), "{url}");
    }
    for url in ["https://*.example.com/", "https://a..example.com/", "https://example.com../", "https://a!b.com/"] {
        assert!(matches!(of(url), Err(NoTarget::Host(_))), "{url}");
    }
    // A backslash ends the host, here as in a browser; what follows is a path.
    assert_eq!(of("https://example.com\\@evil.test/"), of("https://example.com/"));
    assert_eq!(of("https://example.com#@evil.test/"), of("https://example.com/"));
    assert!(of("https://example.com/").is_ok());
}

proptest! {
    #[test]
    fn no_text_panics_and_what_is_read_is_read_again_from_what_is_shown(text in "\\PC{0,40}") {
        if let Ok(rule) = HostRule::parse(&text) {
            prop_assert_eq!(HostRule::parse(&rule.to_string()), Ok(rule));
        }
    }

    #[test]
    fn near_rules_do_not_panic(text in "[*.a-c0-9x:@/\\[\\]%-]{0,20}") {
        if let Ok(rule) = HostRule::parse(&text) {
            prop_assert_eq!(HostRule::parse(&rule.to_string()), Ok(rule));
        }
    }

    #[test]
    fn no_url_panics_and_each_hint_allows_what_was_refused(host in "[a-z0-9.:\\[\\]é%_-]{1,24}", port in 1u16..) {
        if let Ok(url) = Url::parse(&format!("http://{host}:{port}/")) && let Ok(target) = Target::of(&url) {
            let rule = HostRule::parse(&target.to_string());
            prop_assert!(rule.is_ok(), "{:?}", rule);
            prop_assert_eq!(grant(vec![rule.unwrap()]).decide_target(&target), Ok(()));
        }
    }

    #[test]
    fn a_public_rule_never_permits_what_is_not_public(bits: u128) {
        let address = IpAddr::V6(bits.into());
        let permitted = grant(vec![rule("*")]).decide_address(&target("http://a.test/"), address).is_ok();
        prop_assert_eq!(permitted, AddressKind::of(address) == AddressKind::Public);
    }
}

/// A rule may be for some methods and for one scheme; a redirect that changes the method is another question.
#[test]
fn a_rule_may_be_for_some_methods_and_one_scheme() {
    let only = |methods: &[Method], scheme| grant(vec![rule("a.test").only(Some(methods.to_vec()), scheme)]);
    let told = |grant: &Grant, url: &str, method| match grant.decide_target(&target(url).by(method)) {
        Ok(()) => "yes".to_owned(),
        Err(refusal) => format!("{} ({})", refusal.reason, refusal.hint),
    };
    let reads = only(&[Method::Get, Method::Head], None);
    for method in Method::ALL {
        let allowed = matches!(method, Method::Get | Method::Head);
        for url in ["http://a.test/", "https://a.test/"] {
            assert_eq!(told(&reads, url, method) == "yes", allowed, "{method:?} {url}");
            let all = grant(vec![rule("a.test")]);
            assert_eq!(told(&all, url, method), "yes");
            assert_ne!(told(&only(&[], None), url, method), "yes");
        }
    }
    assert_eq!(
        told(&reads, "https://a.test/", Method::Post),
        "POST over https is not allowed for the host `a.test` (add `{ host: \"a.test:443\", methods: [POST], scheme: https }` to `network.allowed_domains` in `.harness/harness.md`)"
    );
    assert_eq!(
        told(&reads, "https://b.test/", Method::Post),
        "the host `b.test` is not allowed (add `{ host: \"b.test:443\", methods: [POST], scheme: https }` to `network.allowed_domains` in `.harness/harness.md`)"
    );
    let secure = grant(vec![rule("a.test").only(None, Some(Scheme::Https))]);
    assert_eq!(told(&secure, "https://a.test/", Method::Delete), "yes");
    assert!(told(&secure, "http://a.test/", Method::Get).starts_with("GET over http is not allowed"));
    // One rule has to allow all of it: this method from one and a private address from another are not enough.
    let two = grant(vec![rule("a.test"), private("a.test").only(Some(vec![Method::Get]), None)]);
    let inside = "10.0.0.1".parse().unwrap();
    assert_eq!(two.decide_address(&target("http://a.test/"), inside), Ok(()));
    assert!(two.decide_address(&target("http://a.test/").by(Method::Post), inside).is_err());
    assert_eq!(
        rule("a.test:81").only(Some(vec![Method::Get, Method::Put]), Some(Scheme::Http)).to_string(),
        "a.test:81 by GET or PUT over http"
    );
}
