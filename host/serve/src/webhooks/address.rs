//! Where something of a tenant may be sent: over TLS to a public address, or where its class names a receiver of the operator's.

use harness_artifact::policy::tenant::is_inside;
use harness_policy::text::quoted;
use url::{Host, Url};

use crate::class::Class;
use crate::problem::Problem;

/// Bytes of a URL.
const LONGEST: usize = 2_048;

/// A URL that something may be sent to. What its name leads to is decided again when it is connected to.
///
/// # Errors
///
/// Why nothing may be sent there.
pub(crate) fn checked(given: &str, class: &Class) -> Result<Url, String> {
    // A reader of URLs leaves some of these out, and what is called would not be what was written.
    if given.len() > LONGEST || !given.chars().all(|c| c.is_ascii_graphic()) {
        return Err(format!("a URL is at most {LONGEST} characters of ASCII without spaces and controls"));
    }
    let url = Url::parse(given).map_err(|error| format!("{} is no URL: {error}", quoted(given)))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL has a user or a password: the signature says who sends".to_owned());
    }
    if url.fragment().is_some() {
        return Err("the URL has a fragment, which is never sent".to_owned());
    }
    let is_named = is_named(&url, class);
    if !is_named && is_inside(&url) {
        return Err(format!("{} is at an address that is not public", quoted(given)));
    }
    match url.scheme() {
        "https" => Ok(url),
        // Nobody else reads along there.
        "http" if is_named && is_loopback(&url) => Ok(url),
        _ => Err(format!("{} is not a URL of `https`", quoted(given))),
    }
}

/// Whether the class names this receiver, so that it need not be public.
pub(super) fn is_named(url: &Url, class: &Class) -> bool {
    let Some((host, port)) = url.host_str().zip(url.port_or_known_default()) else { return false };
    class.given.webhooks_inside.contains(&format!("{host}:{port}"))
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(_)) | None => false,
    }
}

/// The error of a request that names such a URL.
pub(super) fn refused(why: &str) -> Problem {
    Problem::invalid(format!("`url`: {why}")).hint("name an `https` URL at a public address")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use harness_artifact::server::TenantClass;

    use super::*;

    fn class(inside: &[&str]) -> Class {
        let webhooks_inside = inside.iter().map(|one| (*one).to_owned()).collect();
        Class::new(
            "it",
            TenantClass { webhooks_inside, ..TenantClass::default() },
            "policy.yaml".into(),
            (Arc::default(), Arc::default()),
        )
    }

    #[test]
    fn only_public_addresses_over_tls_and_what_the_class_names() {
        let inside = class(&["127.0.0.1:8080", "hooks.internal:443", "192.168.1.2:80"]);
        for (url, class) in [
            ("https://hooks.example.com/in?a=b", &class(&[])),
            ("https://8.8.8.8:8443/", &class(&[])),
            ("http://127.0.0.1:8080/in", &inside),
            ("https://127.0.0.1:8080/in", &inside),
            ("https://hooks.internal/in", &inside),
            ("https://192.168.1.2:80/", &inside),
        ] {
            assert!(checked(url, class).is_ok(), "{url}");
        }
        for (url, why) in [
            ("http://hooks.example.com/", "`https`"),
            ("ftp://hooks.example.com/", "`https`"),
            ("file:///etc/passwd", "not public"),
            ("https://127.0.0.1/", "not public"),
            ("https://127.0.0.1:8081/", "not public"),
            ("https://2130706433/", "not public"),
            ("https://0x7f.1/", "not public"),
            ("https://[::1]/", "not public"),
            ("https://[::ffff:127.0.0.1]/", "not public"),
            ("https://[64:ff9b::7f00:1]/", "not public"),
            ("https://169.254.169.254/latest/meta-data", "not public"),
            ("https://10.0.0.1/", "not public"),
            ("https://localhost/", "not public"),
            ("https://a.localhost/", "not public"),
            ("http://192.168.1.2:80/", "`https`"),
            ("https://u:p@hooks.example.com/", "a user"),
            ("https://hooks.example.com/#a", "a fragment"),
            ("https://hooks.example.com/\r\nX-Injected: 1", "without spaces"),
            ("https://hooks.example.com/a b", "without spaces"),
            ("https://hooks.exämple.com/", "ASCII"),
            ("hooks.example.com", "no URL"),
        ] {
            let refused = checked(url, &inside).unwrap_err();
            assert!(refused.contains(why), "{url}: {refused}");
        }
        assert!(checked(&format!("https://a.example/{}", "x".repeat(LONGEST)), &inside).is_err());
    }
}
