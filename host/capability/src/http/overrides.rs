//! Other methods that a server may take a request for: what it reads in headers, in the query and in the body.
//!
//! Frameworks let a client that can only send GET and POST name another method elsewhere. A rule with `methods` counts each
//! of these as a method of the request. Known are
//!
//! - the headers of [`HEADERS`];
//! - parameters of [`PARAMETERS`] in the query, in a body of `application/x-www-form-urlencoded`, as fields of a
//!   `multipart/` body and as keys of the object that a JSON body is.
//!
//! Names are compared as the least careful server does: in any letter case, and with every character but letters and
//! digits as `_`. A body without a content type, or with several, is read in each way.
//!
//! A body that a server may read and this cannot counts as every method: one that is packed, one in another character set,
//! and an object of JSON with what some readers of JSON take and others do not.

use std::collections::BTreeSet;
use std::fmt;

use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use url::form_urlencoded;

use super::Error;
use harness_policy::network::Method;

/// Headers that name another method.
pub(super) const HEADERS: [&str; 10] = [
    "http-method-override",
    "method-override",
    "x-forwarded-method",
    "x-http-method",
    "x-http-method-override",
    "x-http-verb",
    "x-method-override",
    "x-original-method",
    "x-request-method",
    "x-requested-method",
];

/// Parameters and fields that do, as [`normal`] has them; the names of the headers too.
const PARAMETERS: [&str; 3] = ["_method", "_http_method", "_httpmethod"];

/// Character sets in which the bytes of a body mean what they mean here, as far as letters and digits go.
const CHARACTER_SETS: [&str; 6] = ["utf-8", "utf8", "us-ascii", "ascii", "iso-8859-1", "windows-1252"];

/// The other methods of a request.
pub(super) fn methods(request: &reqwest::Request) -> Result<BTreeSet<Method>, Error> {
    let mut found = Found::default();
    for value in HEADERS.iter().flat_map(|name| request.headers().get_all(*name)) {
        found.value(&String::from_utf8_lossy(value.as_bytes()));
    }
    found.form(request.url().query().unwrap_or_default());
    if let Some(body) = request.body().and_then(reqwest::Body::as_bytes) {
        let types: Vec<String> = request
            .headers()
            .get_all(CONTENT_TYPE)
            .iter()
            .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_ascii_lowercase())
            .collect();
        let body = String::from_utf8_lossy(body);
        let mut encodings = request.headers().get_all(CONTENT_ENCODING).iter();
        let is_packed = encodings.any(|coding| !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"identity"));
        if !body.is_empty() && (is_packed || types.iter().any(|one| is_in_another_character_set(one))) {
            found.methods.extend(Method::ALL);
        }
        let is = |test: fn(&str) -> bool| types.len() != 1 || types.iter().any(|one| test(one));
        if is(|one| one.starts_with("application/x-www-form-urlencoded")) {
            found.form(&body);
        }
        if is(|one| one.starts_with("multipart/")) {
            found.multipart(&body);
        }
        if is(|one| one.split(';').next().is_some_and(|one| one.contains("json"))) {
            found.json(&body);
        }
    }
    if found.unknown {
        let why = "a header, a parameter or a field that names another method names none that is known";
        return Err(Error::InvalidRequest(why.to_owned()));
    }
    Ok(found.methods)
}

/// The methods found so far.
#[derive(Default)]
struct Found {
    methods: BTreeSet<Method>,
    /// Whether a name was found with something else than a method.
    unknown: bool,
}

impl Found {
    fn value(&mut self, text: &str) {
        match Method::of(&text.trim().to_ascii_uppercase()) {
            Some(method) => drop(self.methods.insert(method)),
            None => self.unknown = true,
        }
    }

    fn parameter(&mut self, name: &str, value: &str) {
        if is_override(name) {
            self.value(value);
        }
    }

    /// Pairs as in a query, which some servers separate with `;`.
    fn form(&mut self, text: &str) {
        for piece in text.split(['&', ';']) {
            for (name, value) in form_urlencoded::parse(piece.as_bytes()) {
                self.parameter(&name, &value);
            }
        }
    }

    /// Fields by the line that names them, wherever a boundary is: a server may see another one.
    fn multipart(&mut self, text: &str) {
        let mut lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).peekable();
        while let Some(line) = lines.next() {
            let Some((name, value)) = line.split_once(':') else { continue };
            if !name.trim().eq_ignore_ascii_case("content-disposition") {
                continue;
            }
            let mut header = value.to_owned();
            while let Some(more) = lines.next_if(|line| line.starts_with([' ', '\t'])) {
                header.push_str(more);
            }
            if field_names(&header).any(|name| is_override(&name)) {
                // Further headers of the field, and the line that ends them.
                let value = lines.by_ref().skip_while(|line| !line.is_empty()).nth(1);
                self.value(value.unwrap_or_default());
            }
        }
    }

    /// The keys of the object that a text is; what is read before it is seen to be none counts too.
    fn json(&mut self, text: &str) {
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let mut reader = serde_json::Deserializer::from_str(text);
        if reader.deserialize_any(Keys(self)).is_err() && text.starts_with('{') {
            self.methods.extend(Method::ALL);
        }
    }
}

/// The names in the header of a field, as `name`, `name*` and its numbered parts have them.
fn field_names(header: &str) -> impl Iterator<Item = String> {
    header.split(';').filter_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        let key = key.trim().to_ascii_lowercase();
        if key != "name" && !key.starts_with("name*") {
            return None;
        }
        // `utf-8''_method`
        let value = value.trim().rsplit('\'').next().unwrap_or_default();
        let plain: String = value.chars().filter(|c| !matches!(c, '"' | '\\')).collect();
        form_urlencoded::parse(plain.replace(['&', '='], "").as_bytes()).next().map(|(name, _)| name.into_owned())
    })
}

/// Whether a content type, in lower case, says that the bytes of the body mean something else.
fn is_in_another_character_set(content_type: &str) -> bool {
    let named = content_type.split(';').skip(1).filter_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        key.contains("charset").then(|| value.trim().trim_matches(['"', '\'']).trim())
    });
    named.into_iter().any(|name| !CHARACTER_SETS.contains(&name))
}

fn is_override(name: &str) -> bool {
    let name = normal(name);
    PARAMETERS.contains(&name.as_str()) || HEADERS.iter().any(|header| normal(header) == name)
}

/// A name as the least careful server reads it: up to a NUL, without spaces before it, `a[b` and `a.b` as `a_b`.
fn normal(name: &str) -> String {
    let name = name.split('\0').next().unwrap_or_default().trim();
    let name = name.split_once(']').map_or(name, |(before, _)| before).trim_end_matches('[');
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
}

/// Reads the keys of an object and passes over what is below them.
struct Keys<'f>(&'f mut Found);

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if is_override(&name) {
                self.0.value(&map.next_value::<String>().unwrap_or_default());
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(method: &str, url: &str, headers: &[(&str, &str)], body: Option<&str>) -> Result<Vec<Method>, Error> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let body = body.map(str::to_owned);
        let request =
            super::super::Request { method: method.to_owned(), url: url.to_owned(), headers, body, timeout_ms: 1 };
        methods(&super::super::outgoing::checked(request)?).map(|methods| methods.into_iter().collect())
    }

    const URL: &str = "https://a.test/x";

    #[test]
    fn headers_name_methods() {
        for name in HEADERS {
            assert_eq!(found("POST", URL, &[(name, "delete")], None), Ok(vec![Method::Delete]), "{name}");
            assert!(found("POST", URL, &[(name, "PURGE")], None).is_err(), "{name}");
        }
        assert_eq!(found("POST", URL, &[("X-Method", "DELETE")], None), Ok(vec![]));
    }

    #[test]
    fn a_query_names_methods() {
        for query in [
            "_method=DELETE",
            "a=b&_method=delete",
            "a=b;_METHOD=DELETE",
            "%5fmethod=%44ELETE",
            ".method=DELETE",
            "+_method=DELETE",
            "_method[]=DELETE",
            "_method%00x=DELETE",
            "_HttpMethod=DELETE",
            "X-HTTP-Method-Override=DELETE",
        ] {
            assert_eq!(found("GET", &format!("{URL}?{query}"), &[], None), Ok(vec![Method::Delete]), "{query}");
        }
        let both = format!("{URL}?_method=PUT&_method=DELETE");
        assert_eq!(found("GET", &both, &[], None), Ok(vec![Method::Put, Method::Delete]));
        for query in ["method=DELETE", "my_method=DELETE", "a=_method=DELETE", "x#_method=DELETE"] {
            assert_eq!(found("GET", &format!("{URL}?{query}"), &[], None), Ok(vec![]), "{query}");
        }
        assert!(found("GET", &format!("{URL}?_method="), &[], None).is_err());
    }

    #[test]
    fn a_body_names_methods() {
        let form = ("content-type", "application/x-www-form-urlencoded; charset=utf-8");
        let json = ("content-type", "application/vnd.api+json");
        let multipart = ("content-type", "multipart/form-data; boundary=x");
        let field = "--x\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--x--\r\n";
        let folded = "--y\nContent-Type: text/plain\ncontent-disposition: form-data;\n name*=utf-8''%5Fmethod\nX: y\n\nDELETE\n--y--";
        for (header, body) in [
            (form, "a=b&_method=DELETE"),
            (json, "{\"a\": {\"_method\": \"PUT\"}, \"_method\": \"DELETE\"}"),
            (json, "{\"\\u005fmethod\": \"delete\"} not json"),
            (multipart, field),
            (multipart, folded),
        ] {
            assert_eq!(found("POST", URL, &[header], Some(body)), Ok(vec![Method::Delete]), "{body}");
            // Without a content type, and with two.
            assert_eq!(found("POST", URL, &[], Some(body)), Ok(vec![Method::Delete]), "{body}");
            let two = [header, ("content-type", "text/plain")];
            assert_eq!(found("POST", URL, &two, Some(body)), Ok(vec![Method::Delete]), "{body}");
            // A text is no form.
            let text = [("content-type", "text/plain")];
            assert_eq!(found("POST", URL, &text, Some(body)), Ok(vec![]), "{body}");
        }
        for (header, body) in
            [(form, "a=b&method=DELETE"), (json, "[{\"_method\": \"DELETE\"}]"), (json, "\"_method=DELETE\"")]
        {
            assert_eq!(found("POST", URL, &[header], Some(body)), Ok(vec![]), "{body}");
        }
        assert!(found("POST", URL, &[json], Some("{\"_method\": 1}")).is_err());
        assert!(found("POST", URL, &[multipart], Some("Content-Disposition: form-data; name=_method")).is_err());
    }

    /// Another reader may find in it what this does not.
    #[test]
    fn a_body_that_cannot_be_read_counts_as_every_method() {
        let json = ("content-type", "application/json");
        let all = || Ok(Method::ALL.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>());
        let packed = |coding| [("content-type", "text/plain"), ("content-encoding", coding)];
        for coding in ["deflate", "GZIP", "identity, br", "unknown"] {
            assert_eq!(found("POST", URL, &packed(coding), Some("x")), all(), "{coding}");
        }
        let wide = "\0{\0\"\0_\0m\0e\0t\0h\0o\0d\0\"\0:\0\"\0P\0U\0T\0\"\0}";
        for set in ["utf-16be", "\"UTF-16\"", "utf-7", "ibm037", ""] {
            let of = format!("application/json; charset={set}");
            assert_eq!(found("POST", URL, &[("content-type", &of)], Some(wide)), all(), "{set}");
        }
        for body in
            ["{\"\\ud800\": 1, \"_method\": \"PUT\"}", " {\"a\": NaN, \"_method\": \"PUT\"}", "{a: 1}", "\u{feff}{"]
        {
            assert_eq!(found("POST", URL, &[json], Some(body)), all(), "{body}");
        }
        for (headers, body) in [
            (packed(" Identity "), "x"),
            (packed("deflate"), ""),
            ([json, ("x-y", "z")], "not json"),
            ([("content-type", "application/json; charset=\"UTF-8\""), ("x-y", "z")], "{\"a\": \"\\ud800\"}"),
        ] {
            assert_eq!(found("POST", URL, &headers, Some(body)), Ok(vec![]), "{headers:?} {body}");
        }
    }

    #[test]
    fn a_deep_body_is_read_to_its_end() {
        let deep = format!("{{\"a\": {}{}, \"_method\": \"PUT\"}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(found("POST", URL, &[], Some(&deep)), Ok(vec![Method::Put]));
    }
}
