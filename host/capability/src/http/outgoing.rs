//! A request as the guest gave it, checked and typed.

use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use url::Url;

use super::{Error, MAX_BODY_BYTES, Request, overrides};
use harness_policy::network::{self, Target};
use harness_policy::refusal::Refusal;

const MAX_URL_BYTES: usize = 8192;
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 8192;

const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS];

/// Headers that say how the connection is used, which the host decides. All that start with `proxy-` are refused too.
const OF_THE_CONNECTION: [&str; 11] = [
    "accept-encoding",
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What a request asks: as it is, and as a server may take it that looks [elsewhere](overrides) for another method.
pub(super) fn targets(request: &reqwest::Request) -> Result<(Target, Vec<Target>), Error> {
    let target = Target::of(request.url())?;
    let asked = |method: &str| {
        let method = network::Method::of(method).ok_or_else(|| invalid("the method is not known"))?;
        Ok::<_, Error>(target.clone().by(method))
    };
    let others = overrides::methods(request)?.into_iter().map(|method| target.clone().by(method)).collect();
    Ok((asked(request.method().as_str())?, others))
}

/// Everything that can be said of a request without knowing the grant.
pub(super) fn checked(request: Request) -> Result<reqwest::Request, Error> {
    let method = METHODS
        .into_iter()
        .find(|method| method.as_str().eq_ignore_ascii_case(&request.method))
        .ok_or_else(|| invalid("the method is none of GET, HEAD, POST, PUT, PATCH, DELETE and OPTIONS"))?;
    let url = parse_url(&request.url, |text| Url::parse(text))?;
    let mut out = reqwest::Request::new(method, url);
    *out.headers_mut() = headers(&request.headers)?;
    if let Some(body) = request.body {
        if body.len() > MAX_BODY_BYTES {
            return Err(Error::InvalidRequest(format!("the body is over {MAX_BODY_BYTES} bytes")));
        }
        *out.body_mut() = Some(body.into());
    }
    Ok(out)
}

/// Parses a URL from a script or a server. Control characters are refused and not removed, as the parser would: what a
/// person reads in a log is what was asked.
pub(super) fn parse_url(text: &str, parse: impl Fn(&str) -> Result<Url, url::ParseError>) -> Result<Url, Error> {
    if text.len() > MAX_URL_BYTES {
        return Err(Error::InvalidUrl(format!("the URL is over {MAX_URL_BYTES} bytes")));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::InvalidUrl("there is a control character in the URL".to_owned()));
    }
    parse(text).map_err(|error| Error::InvalidUrl(error.to_string()))
}

fn headers(given: &[(String, String)]) -> Result<HeaderMap, Error> {
    if given.len() > MAX_HEADERS {
        return Err(Error::InvalidRequest(format!("there are over {MAX_HEADERS} headers")));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in given {
        if name.len() > MAX_HEADER_BYTES || value.len() > MAX_HEADER_BYTES {
            return Err(Error::InvalidRequest(format!("a header is over {MAX_HEADER_BYTES} bytes")));
        }
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("a header's name is not one"))?;
        let name = parsed.as_str();
        // Many servers hand headers to programs as variables, in which `-` is `_` and so is every other such character:
        // `Transfer_Encoding` would be read as what is refused below.
        if let Some(odd) = name.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
            let name = name.get(..64).unwrap_or(name).replace('`', "'");
            let odd = if odd == '`' { '\'' } else { odd };
            let reason = format!("the header `{name}` holds `{odd}`, which servers may read as `-`");
            return Err(Refusal::always(reason).into());
        }
        if OF_THE_CONNECTION.contains(&name) || name.starts_with("proxy-") {
            let name = name.get(..64).unwrap_or(name);
            return Err(Refusal::always(format!("the header `{name}` belongs to the connection")).into());
        }
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
            let name = name.get(..64).unwrap_or(name);
            Error::InvalidRequest(format!("the value of the header `{name}` holds a control character"))
        })?;
        headers.append(parsed, value);
    }
    Ok(headers)
}

fn invalid(why: &str) -> Error {
    Error::InvalidRequest(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(method: &str, url: &str, headers: &[(&str, &str)]) -> Request {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Request { method: method.to_owned(), url: url.to_owned(), headers, body: None, timeout_ms: 1 }
    }

    #[test]
    fn methods_are_seven_in_any_case() {
        for method in ["GET", "get", "Head", "post", "PUT", "patch", "DELETE", "options"] {
            let checked = checked(request(method, "http://a.test/", &[])).unwrap();
            assert_eq!(checked.method().as_str(), method.to_ascii_uppercase());
        }
        for method in ["", "CONNECT", "TRACE", "GET ", "GET\r\nX: y", "PROPFIND"] {
            assert!(
                matches!(checked(request(method, "http://a.test/", &[])), Err(Error::InvalidRequest(_))),
                "{method}"
            );
        }
    }

    #[test]
    fn urls_are_bounded_and_without_control_characters() {
        assert!(checked(request("GET", "http://a.test/a b?q=é", &[])).is_ok());
        for url in [
            "",
            "a.test",
            "/path",
            "http://",
            "http://a.te\tst/",
            "http://a.test/\r\nX: y",
            "http://a.test/\0",
            "http://a.test\n",
        ] {
            assert!(matches!(checked(request("GET", url, &[])), Err(Error::InvalidUrl(_))), "{url:?}");
        }
        let fits = format!("http://a.test/{}", "x".repeat(8192 - 14));
        assert!(checked(request("GET", &fits, &[])).is_ok());
        assert!(matches!(checked(request("GET", &format!("{fits}x"), &[])), Err(Error::InvalidUrl(_))));
    }

    #[test]
    fn headers_of_the_connection_are_refused_in_any_case() {
        assert!(checked(request("GET", "http://a.test/", &[("Accept", "text/plain"), ("X-Proxy-Thing", "1")])).is_ok());
        for name in OF_THE_CONNECTION.into_iter().chain([
            "Host",
            "PROXY-Authorization",
            "proxy-connection",
            "Transfer-Encoding",
        ]) {
            let reason = format!("the header `{}` belongs to the connection", name.to_ascii_lowercase());
            assert_eq!(
                checked(request("GET", "http://a.test/", &[(name, "x")])).unwrap_err(),
                Refusal::always(reason).into(),
                "{name}"
            );
        }
    }

    #[test]
    fn headers_have_no_other_characters_than_letters_digits_and_dashes() {
        for name in ["X_HTTP_Method_Override", "Transfer_Encoding", "x.http.method", "a~b", "a`b", "_"] {
            let refused = checked(request("GET", "http://a.test/", &[(name, "x")])).unwrap_err();
            let odd = name.chars().find(|c| !c.is_ascii_alphanumeric()).unwrap();
            let (name, odd) = (name.to_ascii_lowercase().replace('`', "'"), odd.to_string().replace('`', "'"));
            let reason = format!("the header `{name}` holds `{odd}`, which servers may read as `-`");
            assert_eq!(refused, Refusal::always(reason).into());
        }
        assert!(checked(request("GET", "http://a.test/", &[("X-Api-Key-2", "x")])).is_ok());
    }

    #[test]
    fn headers_cannot_smuggle_lines() {
        for (name, value) in [
            ("x", "a\r\nb: c"),
            ("x", "a\nb"),
            ("x", "a\0"),
            ("x\r\ny", "a"),
            ("", "a"),
            ("x:", "a"),
            ("x y", "a"),
            ("é", "a"),
        ] {
            let sent = checked(request("GET", "http://a.test/", &[(name, value)]));
            assert!(matches!(sent, Err(Error::InvalidRequest(_))), "{name:?} {value:?}");
        }
        assert!(checked(request("GET", "http://a.test/", &[("x", "é\tb")])).is_ok());
        assert!(checked(request("GET", "http://a.test/", &[("x", ""); 64])).is_ok());
        assert!(checked(request("GET", "http://a.test/", &[("x", ""); 65])).is_err());
        assert!(checked(request("GET", "http://a.test/", &[("x", &"v".repeat(8193))])).is_err());
    }

    #[test]
    fn a_body_has_a_cap() {
        let with = |bytes| Request { body: Some("x".repeat(bytes)), ..request("POST", "http://a.test/", &[]) };
        assert!(checked(with(MAX_BODY_BYTES)).is_ok());
        assert!(matches!(checked(with(MAX_BODY_BYTES + 1)), Err(Error::InvalidRequest(_))));
    }

    proptest! {
        #[test]
        fn nothing_panics(method in "\\PC{0,8}", url in "\\PC{0,40}", name in "\\PC{0,10}", value in ".{0,10}") {
            let _ = checked(request(&method, &url, &[(&name, &value)]));
        }
    }
}
