//! `validate.email`, `validate.url`, `validate.json`: True or False for a string.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::{Heap, Value};
use url::Url;

use super::{argument, json};

use crate::observe::pure;

/// Bytes of an e-mail address and of what is before its `@`: RFC 5321, section 4.5.3.1.
const MAX_ADDRESS: usize = 254;
const MAX_LOCAL: usize = 64;

/// Bytes of one label of a host name: RFC 1035, section 2.3.4.
const MAX_LABEL: usize = 63;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("validate", |space| pure(space, "validate", functions));
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// An address as people write it, `ada@example.org`: a dot-atom, `@`, a host name. Neither quoted names nor
    /// addresses in brackets nor a display name. Whether anybody reads mail there is another matter.
    fn email<'v>(s: Value<'v>) -> anyhow::Result<bool> {
        Ok(is_email(argument::text("validate.email", "s", s)?))
    }

    /// An absolute URL with a host, `https://example.org/a`.
    fn url<'v>(s: Value<'v>) -> anyhow::Result<bool> {
        Ok(is_url(argument::text("validate.url", "s", s)?))
    }

    /// What `json.decode` can read.
    fn json<'v>(s: Value<'v>, heap: Heap<'v>) -> anyhow::Result<bool> {
        Ok(json::read(argument::text("validate.json", "s", s)?, heap).is_ok())
    }
}

fn is_email(text: &str) -> bool {
    let Some((local, host)) = text.rsplit_once('@') else {
        return false;
    };
    let atom = |text: &str| !text.is_empty() && text.bytes().all(is_atom_byte);
    text.len() <= MAX_ADDRESS && local.len() <= MAX_LOCAL && local.split('.').all(atom) && host.split('.').all(is_label)
}

/// The characters of an atom: RFC 5322, section 3.2.3.
fn is_atom_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte)
}

fn is_label(text: &str) -> bool {
    (1..=MAX_LABEL).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn is_url(text: &str) -> bool {
    // The parser mends what people type into a browser: white space around it, `http:host`, `http:/host`.
    let written_out = text.split_once("://").is_some_and(|(_, rest)| !rest.starts_with(['/', '\\']));
    let clean = !text.contains(|char: char| char.is_whitespace() || char.is_control());
    let host = |url: Url| url.host_str().is_some_and(|host| !host.is_empty());
    written_out && clean && Url::parse(text).is_ok_and(host)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{check, fail_all};

    fn table(function: &str, valid: bool, texts: &[&str]) {
        for text in texts {
            check(&format!("validate.{function}({})", json!(text)), json!(valid));
        }
    }

    #[test]
    fn email() {
        let local = "a".repeat(64);
        let label = "b".repeat(63);
        let long = format!("{local}@{label}.{label}.{}", "c".repeat(61));
        assert_eq!(long.len(), 254);
        table(
            "email",
            true,
            &["ada@example.org", "a.b+c_d@x-y.example", "1@2.de", "!#$%&'*+-/=?^_`{|}~@x.y", "root@localhost", &long],
        );
        table(
            "email",
            false,
            &[
                "",
                "@",
                "ada",
                "ada@",
                "@example.org",
                "a@b@c.de",
                "a b@c.de",
                "a@b c.de",
                "a@b.de ",
                "a@b.de\n",
                ".a@b.de",
                "a.@b.de",
                "a..b@c.de",
                "a@.de",
                "a@b.",
                "a@b..de",
                "a@-b.de",
                "a@b-.de",
                "a@b_c.de",
                "\"a b\"@c.de",
                "a@[127.0.0.1]",
                "Ada <ada@example.org>",
                "\u{e9}@b.de",
                "a@\u{e9}.de",
                "a,b@c.de",
                &format!("{local}a@b.de"),
                &format!("a@{label}b.de"),
                &format!("{long}c"),
            ],
        );
    }

    #[test]
    fn url() {
        table(
            "url",
            true,
            &[
                "http://example.org",
                "HTTPS://example.org:8443/a?b=c#d",
                "https://me:pw@h/",
                "ftp://h/x",
                "http://127.0.0.1:80",
                "http://[::1]/",
                "https://ex\u{e4}mple.com/",
                "ssh://git@h/x",
                "file://h/a",
            ],
        );
        table(
            "url",
            false,
            &[
                "",
                "example.org",
                "/a",
                "//h/a",
                "http:",
                "http://",
                "http:h",
                "http:/h",
                "http:///h",
                "http:\\\\h",
                "mailto:a@b.de",
                "file:///a",
                "http://h:99999/",
                "http://a b/",
                " http://h",
                "http://h ",
                "http://h\n",
                "ht tp://h",
                "http://[::1",
                "javascript:alert(1)//http://h",
                "1http://h",
                "://h",
            ],
        );
    }

    #[test]
    fn json() {
        table("json", true, &["null", " [1, {\"a\": 1.5e3}] ", "\"x\"", "123456789012345678901234567890"]);
        table("json", false, &["", "{", "{'a': 1}", "[1,]", "nan", "01", "1 2", "1e999"]);
        check("validate.json('[' * 127 + ']' * 127)", json!(true));
        check("validate.json('[' * 128 + ']' * 128)", json!(false));
    }

    #[test]
    fn arguments() {
        check(
            "[validate.email(s = 'a@b.de'), validate.url(s = 'a'), validate.json(s = '1')]",
            json!([true, false, true]),
        );
        fail_all([
            ("validate.email(1)", "validate.email: s must be a string, got int"),
            ("validate.url(None)", "validate.url: s must be a string, got NoneType"),
            ("validate.json([])", "validate.json: s must be a string, got list"),
        ]);
    }
}
