//! `url.parse`, `url.encode`.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::dict::{AllocDict, DictRef};
use starlark::values::list::{AllocList, ListRef};
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value};
use url::{Host, Url, form_urlencoded};

use super::argument;
use crate::observe::pure;
use crate::value;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("url", |space| pure(space, "url", functions));
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// The parts of an absolute URL, read as `http.get` reads it: a dict `scheme, host, hostname, port, path,
    /// raw_query, fragment, query, string`, and `username` and `password` where the URL has them.
    ///
    /// `host` is `hostname` with the port, which is a string and empty where it is the scheme's own. Path, fragment
    /// and names are decoded, `raw_query` and `string` are not. `query` has a list of values for each name.
    fn parse<'v>(s: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        let text = argument::text("url.parse", "s", s)?;
        let url = Url::parse(text).map_err(|error| anyhow::anyhow!("url.parse: {error}"))?;
        Ok(describe(&url, heap))
    }

    /// A query string from a dict: `a=1&b=2`, in the dict's order. A list gives the name once for each item, None
    /// leaves it out.
    fn encode<'v>(params: Value<'v>) -> anyhow::Result<String> {
        let Some(params) = DictRef::from_value(params) else {
            anyhow::bail!("url.encode: params must be a dict, got {}", params.get_type());
        };
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in params.iter() {
            let Some(name) = name.unpack_str() else {
                anyhow::bail!("url.encode: names must be strings, got {}", name.get_type());
            };
            match (ListRef::from_value(value), TupleRef::from_value(value)) {
                (Some(list), _) => append(&mut query, name, list.content())?,
                (None, Some(tuple)) => append(&mut query, name, tuple.content())?,
                (None, None) => append(&mut query, name, &[value])?,
            }
        }
        Ok(query.finish())
    }
}

fn describe<'v>(url: &Url, heap: Heap<'v>) -> Value<'v> {
    let hostname = match url.host() {
        Some(Host::Ipv6(address)) => address.to_string(),
        Some(host) => host.to_string(),
        None => String::new(),
    };
    let port = url.port().map(|port| port.to_string()).unwrap_or_default();
    let bare = url.host_str().unwrap_or_default();
    let host = if port.is_empty() { bare.to_owned() } else { format!("{bare}:{port}") };
    let mut fields = vec![
        ("scheme", heap.alloc(url.scheme())),
        ("host", heap.alloc(host)),
        ("hostname", heap.alloc(hostname)),
        ("port", heap.alloc(port)),
        ("path", heap.alloc(decode(url.path()))),
        ("raw_query", heap.alloc(url.query().unwrap_or_default())),
        ("fragment", heap.alloc(decode(url.fragment().unwrap_or_default()))),
        ("query", query(url, heap)),
        ("string", heap.alloc(url.as_str())),
    ];
    if !url.username().is_empty() || url.password().is_some() {
        fields.push(("username", heap.alloc(decode(url.username()))));
    }
    if let Some(password) = url.password() {
        fields.push(("password", heap.alloc(decode(password))));
    }
    heap.alloc(AllocDict(fields))
}

fn query<'v>(url: &Url, heap: Heap<'v>) -> Value<'v> {
    // A map rather than a search for each name: the text may hold many thousands.
    let mut values: starlark::collections::SmallMap<String, Vec<String>> = starlark::collections::SmallMap::new();
    for (name, value) in url.query_pairs() {
        values.entry(name.into_owned()).or_default().push(value.into_owned());
    }
    heap.alloc(AllocDict(values.into_iter().map(|(name, values)| (name, AllocList(values)))))
}

/// Replaces `%41` by `A`. Bytes that are not UTF-8 afterwards become replacement characters.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                bytes.push(digit(*high) << 4 | digit(*low));
                after
            }
            _ => {
                bytes.push(*first);
                after
            }
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        _ => (byte | 0x20) - b'a' + 10,
    }
}

fn append(query: &mut form_urlencoded::Serializer<'_, String>, name: &str, values: &[Value<'_>]) -> anyhow::Result<()> {
    for value in values {
        if value.is_none() {
            continue;
        }
        match value.unpack_str() {
            Some(text) => query.append_pair(name, text),
            None if matches!(value.get_type(), "int" | "float" | "bool") => {
                // As JSON writes them: `true`, `1.5`.
                let json = value::to_json(*value).map_err(|error| anyhow::anyhow!("url.encode: {error}"))?;
                query.append_pair(name, &json.to_string())
            }
            None => anyhow::bail!(
                "url.encode: `{name}` must be a string, a number, a bool, a list of these, or None, got {}",
                value.get_type()
            ),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::testing::{check, check_all, evaluate, fail_all};

    #[test]
    fn parse() {
        check(
            "url.parse('HTTPS://me:p%40ss@Example.com:8443/a%20b/c?x=1&y=a+b&x=%C3%A9&z#top%21')",
            json!({
                "scheme": "https", "host": "example.com:8443", "hostname": "example.com", "port": "8443",
                "path": "/a b/c", "raw_query": "x=1&y=a+b&x=%C3%A9&z", "fragment": "top!",
                "query": {"x": ["1", "\u{e9}"], "y": ["a b"], "z": [""]},
                "string": "https://me:p%40ss@example.com:8443/a%20b/c?x=1&y=a+b&x=%C3%A9&z#top%21",
                "username": "me", "password": "p@ss",
            }),
        );
        check(
            "url.parse(s = 'http://localhost')",
            json!({
                "scheme": "http", "host": "localhost", "hostname": "localhost", "port": "", "path": "/",
                "raw_query": "", "fragment": "", "query": {}, "string": "http://localhost/",
            }),
        );
        check(
            "url.parse('http://[::1]:9/')",
            json!({
                "scheme": "http", "host": "[::1]:9", "hostname": "::1", "port": "9", "path": "/",
                "raw_query": "", "fragment": "", "query": {}, "string": "http://[::1]:9/",
            }),
        );
        check(
            "url.parse('mailto:a@b.example')",
            json!({
                "scheme": "mailto", "host": "", "hostname": "", "port": "", "path": "a@b.example",
                "raw_query": "", "fragment": "", "query": {}, "string": "mailto:a@b.example",
            }),
        );
        check_all([
            ("url.parse('https://h:443/')['port']", json!("")),
            ("url.parse('https://me@h/').get('username')", json!("me")),
            ("'password' in url.parse('https://me@h/')", json!(false)),
            ("'username' in url.parse('https://h/')", json!(false)),
            ("url.parse('https://h/%41%zz%4')['path']", json!("/A%zz%4")),
            ("url.parse('https://h/%ff')['path']", json!("/\u{fffd}")),
            // What a browser, and `http.get`, make of these.
            ("url.parse('https:\\\\\\\\h\\\\a\\\\..\\\\b')['string']", json!("https://h/b")),
            ("url.parse('https://ex\u{e4}mple.com/')['hostname']", json!("xn--exmple-cua.com")),
            ("url.parse('http://0x7f.1/')['hostname']", json!("127.0.0.1")),
        ]);
    }

    #[test]
    fn parse_errors() {
        fail_all([
            ("url.parse('/a/b')", "url.parse: relative URL without a base"),
            ("url.parse('')", "url.parse: relative URL without a base"),
            ("url.parse('http://')", "url.parse: empty host"),
            ("url.parse('http://h:99999/')", "url.parse: invalid port number"),
            ("url.parse('http://[::1')", "url.parse: invalid IPv6 address"),
            ("url.parse(1)", "url.parse: s must be a string, got int"),
        ]);
    }

    #[test]
    fn encode() {
        check_all([
            ("url.encode({})", json!("")),
            ("url.encode({'b': 'x y', 'a': '\u{e9}&=+%'})", json!("b=x+y&a=%C3%A9%26%3D%2B%25")),
            (
                "url.encode(params = {'n': 1, 'f': 1.5, 't': True, 'big': 1 << 70})",
                json!("n=1&f=1.5&t=true&big=1180591620717411303424"),
            ),
            ("url.encode({'x': ['a', 1, None, 'b'], 'y': None, 'z': (), 'w': ('c',)})", json!("x=a&x=1&x=b&w=c")),
            ("url.encode({'': ''})", json!("=")),
        ]);
        fail_all([
            ("url.encode('a b')", "url.encode: params must be a dict, got string"),
            ("url.encode([('a', 'b')])", "url.encode: params must be a dict, got list"),
            ("url.encode({1: 'a'})", "url.encode: names must be strings, got int"),
            (
                "url.encode({'a': {}})",
                "url.encode: `a` must be a string, a number, a bool, a list of these, or None, got dict",
            ),
            (
                "url.encode({'a': [[1]]})",
                "url.encode: `a` must be a string, a number, a bool, a list of these, or None, got list",
            ),
            ("url.encode({'a': float('nan')})", "url.encode: NaN cannot be told as JSON"),
        ]);
    }

    proptest! {
        #[test]
        fn parse_reads_what_encode_writes(name in ".{0,8}", first in ".{0,8}", second in ".{0,8}") {
            let params = json!({ name: [first, second] });
            let program = format!("url.parse('http://h/?' + url.encode({params}))['query']");
            prop_assert_eq!(evaluate(&program).unwrap(), params);
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in "(https?|file|a)?:?/{0,3}[a-z0-9@:%?#&=.\\[\\]\\\\/ \u{e9}]{0,20}") {
            if let Err(error) = evaluate(&format!("url.parse({})", json!(text))) {
                prop_assert!(error.starts_with("url.parse: "), "{}", error);
            }
        }
    }
}
