//! What a redirect makes of a request. Whether it may be followed is decided like any request.

use reqwest::header::{HeaderMap, HeaderValue, LOCATION};
use reqwest::{Method, Request, StatusCode};

use super::Error;
use super::outgoing::parse_url;

/// Headers that say nothing of who asks. Others may hold a key under any name, and stay with the origin that they were
/// given for.
const FOR_ANYBODY: [&str; 8] = [
    "accept",
    "accept-language",
    "cache-control",
    "content-type",
    "if-modified-since",
    "if-none-match",
    "range",
    "user-agent",
];

/// Turns the request into the one that the answer asks for, as browsers do. False where the answer is the final one.
pub(super) fn turn(request: &mut Request, status: StatusCode, headers: &HeaderMap) -> Result<bool, Error> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(false);
    }
    let Some(location) = headers.get(LOCATION) else { return Ok(false) };
    let location = std::str::from_utf8(location.as_bytes())
        .map_err(|_| Error::InvalidUrl("the redirect's location is not text".to_owned()))?;
    let url = parse_url(location, |text| request.url().join(text))?;

    let to_get = match status.as_u16() {
        303 => *request.method() != Method::HEAD,
        301 | 302 => *request.method() == Method::POST,
        _ => false,
    };
    if to_get {
        *request.method_mut() = Method::GET;
        *request.body_mut() = None;
        keep(request.headers_mut(), |name, _| !name.starts_with("content-"));
    }
    // A secret in a header that is for anyone stays behind too.
    if request.url().origin() != url.origin() {
        keep(request.headers_mut(), |name, value| FOR_ANYBODY.contains(&name) && !value.is_sensitive());
    }
    *request.url_mut() = url;
    Ok(true)
}

fn keep(headers: &mut HeaderMap, keeps: impl Fn(&str, &HeaderValue) -> bool) {
    let dropped = headers.iter().filter(|(name, value)| !keeps(name.as_str(), value));
    let dropped: Vec<_> = dropped.map(|(name, _)| name.clone()).collect();
    for name in dropped {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: [&str; 5] = ["accept", "authorization", "content-type", "cookie", "x-api-key"];

    fn request(method: Method) -> Request {
        let mut request = Request::new(method, "https://a.test/one".parse().unwrap());
        for name in HEADERS {
            request.headers_mut().insert(name, HeaderValue::from_static("x"));
        }
        *request.body_mut() = Some("body".into());
        request
    }

    /// Method, URL, headers by name, and whether there is a body.
    fn turned(method: Method, status: u16, location: &str) -> (String, String, Vec<String>, bool) {
        let mut request = request(method);
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_str(location).unwrap())]);
        assert_eq!(turn(&mut request, StatusCode::from_u16(status).unwrap(), &headers), Ok(true));
        let mut names: Vec<String> = request.headers().keys().map(ToString::to_string).collect();
        names.sort_unstable();
        (request.method().to_string(), request.url().to_string(), names, request.body().is_some())
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn the_method_changes_as_in_browsers() {
        for (method, status, want) in [
            (Method::POST, 301, "GET"),
            (Method::POST, 302, "GET"),
            (Method::POST, 303, "GET"),
            (Method::PUT, 303, "GET"),
            (Method::HEAD, 303, "HEAD"),
            (Method::PUT, 301, "PUT"),
            (Method::POST, 307, "POST"),
            (Method::POST, 308, "POST"),
            (Method::GET, 302, "GET"),
        ] {
            let (got, url, headers, body) = turned(method.clone(), status, "/two?x");
            let changed = method != Method::GET && want == "GET";
            assert_eq!(
                (got.as_str(), url.as_str(), body),
                (want, "https://a.test/two?x", !changed),
                "{method} {status}"
            );
            let kept =
                if changed { names(&["accept", "authorization", "cookie", "x-api-key"]) } else { names(&HEADERS) };
            assert_eq!(headers, kept, "{method} {status}");
        }
    }

    #[test]
    fn another_origin_gets_no_credentials() {
        for location in
            ["https://b.test/", "http://a.test/one", "https://a.test:8443/one", "//b.test/", "https://x.a.test/"]
        {
            let (_, _, headers, _) = turned(Method::POST, 307, location);
            assert_eq!(headers, names(&["accept", "content-type"]), "{location}");
        }
        for location in ["https://a.test/", "https://A.test:443/x", "two", "?q"] {
            assert_eq!(turned(Method::POST, 307, location).2, names(&HEADERS), "{location}");
        }
    }

    #[test]
    fn what_is_no_redirect_is_the_answer() {
        let location = HeaderMap::from_iter([(LOCATION, HeaderValue::from_static("/two"))]);
        for status in [200, 201, 300, 304, 305, 306, 404] {
            assert_eq!(turn(&mut request(Method::GET), StatusCode::from_u16(status).unwrap(), &location), Ok(false));
        }
        assert_eq!(turn(&mut request(Method::GET), StatusCode::FOUND, &HeaderMap::new()), Ok(false));
        assert_eq!(turn(&mut request(Method::GET), StatusCode::FOUND, &location), Ok(true));
    }

    #[test]
    fn a_location_that_is_no_url_is_an_error() {
        for location in [&b"\xff"[..], b"http://", b"http://a\tb/"] {
            let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_bytes(location).unwrap())]);
            let turned = turn(&mut request(Method::GET), StatusCode::FOUND, &headers);
            assert!(matches!(turned, Err(Error::InvalidUrl(_))), "{location:?}");
        }
    }
}
