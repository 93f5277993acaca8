//! Whole exchanges with a server on the loopback interface.

mod answers;
mod server;

use std::sync::LazyLock;
use std::time::Instant;

use tokio::net::TcpListener;

use super::*;
use harness_policy::layer::{Layer, Origin, Scope};
use harness_policy::limits::LimitRules;
use harness_policy::network::{HostRule, NetworkRules, Target};
use server::{Say, Server, gzip_of_zeros, speak};

/// A client, and calls that have no secrets.
struct Plain(Client);

impl Plain {
    async fn send(&self, grant: &Grant, request: Request) -> Result<Response, Error> {
        self.0.send(grant, &Handles::default(), request).await
    }
}

static CLIENT: LazyLock<Plain> = LazyLock::new(|| Plain(Client::default()));

fn ok(body: &str) -> Say {
    Say::All(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

fn redirect(status: u16, location: &str) -> Say {
    Say::All(format!("HTTP/1.1 {status} Go\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n").into_bytes())
}

fn grant(rules: &[HostRule]) -> Grant {
    let layer = Layer {
        origin: Origin::new(".harness/harness.md", Scope::Project),
        fs: None,
        network: Some(NetworkRules { allow: rules.to_vec() }),
        exec: None,
        env: None,
        services: None,
        secrets: None,
        limits: LimitRules::default(),
    };
    Grant::new(vec![layer])
}

fn allowed(servers: &[&Server]) -> Grant {
    grant(&servers.iter().map(|server| HostRule::parse(&server.address.to_string()).unwrap()).collect::<Vec<_>>())
}

fn get(url: impl Into<String>) -> Request {
    Request { method: "GET".to_owned(), url: url.into(), headers: Vec::new(), body: None, timeout_ms: 20_000 }
}

fn denial(error: Result<Response, Error>) -> Denial {
    match error {
        Err(Error::AccessDenied(denial)) => denial,
        other => panic!("not denied: {other:?}"),
    }
}

#[tokio::test]
async fn a_granted_host_answers_and_others_are_not_even_connected_to() {
    let server = Server::new(|_| ok("hello")).await;
    let url = server.url("/a?b#c");

    let answer = CLIENT.send(&allowed(&[&server]), get(&url)).await;
    let headers = vec![("content-length".to_owned(), "5".to_owned())];
    assert_eq!(answer, Ok(Response { status: 200, url: url.clone(), headers, body: "hello".to_owned() }));

    let port = server.address.port();
    let refused = Denial {
        reason: format!("the host `127.0.0.1:{port}` is not allowed"),
        hint: format!(
            "add `{{ host: \"127.0.0.1:{port}\", methods: [GET], scheme: http }}` to `network.allowed_domains` in `.harness/harness.md`"
        ),
    };
    for rules in [vec![], vec!["*"], vec!["127.0.0.1"], vec!["127.0.0.2:80", "localhost"]] {
        let rules: Vec<_> = rules.into_iter().map(|text| HostRule::parse(text).unwrap()).collect();
        assert_eq!(denial(CLIENT.send(&grant(&rules), get(&url)).await), refused);
    }
    assert_eq!(denial(CLIENT.send(&Grant::new(vec![]), get(&url)).await), refused);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_request_says_what_the_script_said_and_nothing_of_the_host() {
    let server = Server::new(|_| ok("")).await;
    let request = Request {
        method: "post".to_owned(),
        headers: vec![("X-One".to_owned(), "1".to_owned()), ("x-one".to_owned(), "2".to_owned())],
        body: Some("bödy".to_owned()),
        ..get(server.url("/p"))
    };
    CLIENT.send(&allowed(&[&server]), request).await.unwrap();
    let seen = server.seen().remove(0);
    let (head, body) = seen.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.lines().collect();
    lines.sort_unstable();
    let host = format!("host: {}", server.address);
    let agent = concat!("user-agent: harness/", env!("CARGO_PKG_VERSION"));
    let mut want = vec![
        "POST /p HTTP/1.1",
        "x-one: 1",
        "x-one: 2",
        &host,
        "content-length: 5",
        agent,
        "accept: */*",
        "accept-encoding: gzip,br",
    ];
    want.sort_unstable();
    assert_eq!((lines, body), (want, "bödy"));
}

#[tokio::test]
async fn any_status_is_an_answer_and_headers_are_joined() {
    let server = Server::new(|_| {
        Say::All(
            b"HTTP/1.1 404 No\r\nX-A: 1\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\ncontent-length: 3\r\n\r\na\xffb"
                .to_vec(),
        )
    })
    .await;
    let answer = CLIENT.send(&allowed(&[&server]), get(server.url("/"))).await.unwrap();
    let headers = [("x-a", "1"), ("set-cookie", "a=1, b=2"), ("content-length", "3")];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    assert_eq!(answer, Response { status: 404, url: server.url("/"), headers, body: "a\u{fffd}b".to_owned() });
}

#[tokio::test]
async fn a_cookie_is_not_kept_for_the_next_call() {
    let server =
        Server::new(|_| Say::All(b"HTTP/1.1 200 OK\r\nset-cookie: a=1\r\ncontent-length: 0\r\n\r\n".to_vec())).await;
    for _ in 0..2 {
        CLIENT.send(&allowed(&[&server]), get(server.url("/"))).await.unwrap();
    }
    assert!(server.seen().iter().all(|request| !request.contains("cookie")), "{:?}", server.seen());
}

#[tokio::test]
async fn a_name_that_leads_to_this_machine_needs_a_private_rule() {
    let server = Server::new(|_| ok("inside")).await;
    let port = server.address.port();
    let url = format!("http://localhost:{port}/");
    let rule = HostRule::parse(&format!("localhost:{port}")).unwrap();

    let any = HostRule::parse(&format!("*:{port}")).unwrap();
    let address = HostRule::parse(&server.address.to_string()).unwrap();
    for rules in [vec![rule.clone()], vec![any], vec![rule.clone(), address]] {
        let want = Denial {
            reason: format!(
                "the host `localhost:{port}` leads to a loopback address, which needs a rule with `private: true`"
            ),
            hint: format!(
                "add `{{ host: \"localhost:{port}\", methods: [GET], scheme: http, private: true }}` to `network.allowed_domains` in `.harness/harness.md`"
            ),
        };
        assert_eq!(denial(CLIENT.send(&grant(&rules), get(&url)).await), want);
    }
    assert_eq!(server.seen().len(), 0);

    let private = grant(&[rule.private(true).unwrap()]);
    assert_eq!(CLIENT.send(&private, get(&url)).await.map(|answer| answer.body), Ok("inside".to_owned()));
    // A final dot is the same name to the rules, and is looked up as it was written.
    let dotted = CLIENT.send(&private, get(format!("http://LOCALHOST:{port}/"))).await;
    assert_eq!(dotted.map(|answer| answer.body), Ok("inside".to_owned()));
}

/// An address in a URL is decided on once more, where those of a name are.
#[tokio::test]
async fn an_address_that_is_no_name_is_vetted_too() {
    let names = lookup::Names::default();
    for url in ["http://127.0.0.1:8080/", "http://[::1]:8080/"] {
        let url = url::Url::parse(url).unwrap();
        let target = Target::of(&url).unwrap();
        let vetted = async |grant: Grant| {
            lookup::vetted((&names, (&lookup::Lookups::default(), &lookup::Share::default())), &grant, &target, &url)
                .await
                .is_ok()
        };
        assert!(
            vetted(grant(&[HostRule::parse(&url[url::Position::BeforeHost..url::Position::AfterPort]).unwrap()])).await
        );
        assert!(!vetted(grant(&[HostRule::parse("example.com").unwrap()])).await, "{url}");
    }
}

#[tokio::test]
async fn a_redirect_is_decided_like_a_request() {
    let inner = Server::new(|_| ok("inner")).await;
    let inner_url = inner.url("/x");
    let outer = Server::new(move |_| redirect(302, &inner_url)).await;

    let both = CLIENT.send(&allowed(&[&outer, &inner]), get(outer.url("/"))).await.unwrap();
    assert_eq!((both.url, both.body), (inner.url("/x"), "inner".to_owned()));

    let refused = denial(CLIENT.send(&allowed(&[&outer]), get(outer.url("/"))).await);
    assert_eq!(refused.reason, format!("the host `{}` is not allowed", inner.address));
    assert_eq!(inner.seen().len(), 1);
}

#[tokio::test]
async fn a_redirect_does_not_leave_http() {
    for (location, denied) in
        [("file:///etc/passwd", true), ("gopher://127.0.0.1/", true), ("http://a:b@127.0.0.1/", false)]
    {
        let server = Server::new(move |_| redirect(302, location)).await;
        match CLIENT.send(&allowed(&[&server]), get(server.url("/"))).await {
            Err(Error::AccessDenied(_)) => assert!(denied, "{location}"),
            Err(Error::InvalidUrl(_)) => assert!(!denied, "{location}"),
            other => panic!("{location}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn five_redirects_are_followed_and_a_sixth_is_not() {
    let server = Server::new(|request| {
        let left: u32 = request.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
        if left == 0 { ok("end") } else { redirect(307, &format!("/{}", left - 1)) }
    })
    .await;
    let grant = allowed(&[&server]);
    let five = CLIENT.send(&grant, get(server.url("/5"))).await.unwrap();
    assert_eq!((five.body, server.seen().len()), ("end".to_owned(), 6));
    assert_eq!(CLIENT.send(&grant, get(server.url("/6"))).await, Err(Error::TooManyRedirects));
    assert_eq!(server.seen().len(), 12);
}

#[tokio::test]
async fn credentials_stay_with_their_origin_and_the_body_goes_where_it_is_sent() {
    let other = Server::new(|_| ok("")).await;
    let other_url = other.url("/there");
    let first = Server::new(
        move |request| if request.contains(" /a ") { redirect(307, "/b") } else { redirect(307, &other_url) },
    )
    .await;
    let headers = ["Authorization", "Cookie", "X-Api-Key", "Accept-Language"];
    let headers = headers.map(|name| (name.to_owned(), "secret".to_owned())).to_vec();
    let request = Request { method: "POST".to_owned(), headers, body: Some("body".to_owned()), ..get(first.url("/a")) };
    CLIENT.send(&allowed(&[&first, &other]), request).await.unwrap();

    for request in first.seen() {
        for name in ["authorization", "cookie", "x-api-key", "accept-language"] {
            assert!(request.contains(&format!("\r\n{name}: secret\r\n")), "{request}");
        }
        assert!(request.ends_with("\r\n\r\nbody"), "{request}");
    }
    assert_eq!(first.seen().len(), 2);
    let [there] = &other.seen()[..] else { panic!("{:?}", other.seen()) };
    assert!(there.ends_with("\r\n\r\nbody") && there.matches("secret").count() == 1, "{there}");
    assert!(there.contains("\r\naccept-language: secret\r\n"), "{there}");
}

#[tokio::test]
async fn one_deadline_holds_for_everything() {
    let head = b"HTTP/1.1 200 OK\r\n".to_vec();
    let body = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n".to_vec();
    for start in [b"HTTP/1.1 200 O".to_vec(), head, body] {
        let server = Server::new(move |_| Say::Drip(start.clone())).await;
        let request = Request { timeout_ms: 200, ..get(server.url("/")) };
        let started = Instant::now();
        assert_eq!(CLIENT.send(&allowed(&[&server]), request).await, Err(Error::Timeout(200)));
        assert!(started.elapsed() < Duration::from_secs(300));
    }
    // Redirects share it, each in less than the whole.
    let slow = Server::new(|_| {
        std::thread::sleep(Duration::from_millis(80));
        redirect(302, "/")
    })
    .await;
    let request = Request { timeout_ms: 200, ..get(slow.url("/")) };
    assert_eq!(CLIENT.send(&allowed(&[&slow]), request).await, Err(Error::Timeout(200)));
}

#[tokio::test]
async fn no_time_at_all_is_a_millisecond() {
    let server = Server::new(|_| Say::Drip(b"HTTP/1.1 200 O".to_vec())).await;
    let request = Request { timeout_ms: 0, ..get(server.url("/")) };
    assert_eq!(CLIENT.send(&allowed(&[&server]), request).await, Err(Error::Timeout(1)));
}

#[tokio::test]
async fn endless_answers_end() {
    let body = Server::new(|_| Say::Endless(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 65536])).await;
    assert_eq!(CLIENT.send(&allowed(&[&body]), get(body.url("/"))).await, Err(Error::TooLarge(10 << 20)));
    let headers = Server::new(|_| Say::Endless(b"HTTP/1.1 200 OK\r\n".to_vec(), b"x: y\r\n".repeat(1000))).await;
    let over = "the headers of the answer are over the limit: 100 headers, 65536 bytes";
    let answer = CLIENT.send(&allowed(&[&headers]), get(headers.url("/"))).await;
    assert_eq!(answer, Err(Error::Connection(over.to_owned())));
}

#[tokio::test]
async fn a_body_up_to_the_cap_is_given_and_one_byte_more_is_not() {
    let server = Server::new(|request| ok(&"x".repeat((10 << 20) + usize::from(request.contains("/more"))))).await;
    let grant = allowed(&[&server]);
    assert_eq!(CLIENT.send(&grant, get(server.url("/"))).await.map(|answer| answer.body.len()), Ok(10 << 20));
    assert_eq!(CLIENT.send(&grant, get(server.url("/more"))).await, Err(Error::TooLarge(10 << 20)));
    // Each of these bytes is three in the text.
    let binary = Server::new(|_| {
        let mut bytes = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 4 << 20).into_bytes();
        bytes.resize(bytes.len() + (4 << 20), 0xff);
        Say::All(bytes)
    })
    .await;
    assert_eq!(CLIENT.send(&allowed(&[&binary]), get(binary.url("/"))).await, Err(Error::TooLarge(10 << 20)));
}

#[tokio::test]
async fn a_bomb_is_measured_after_decompression() {
    let server = Server::new(|request| {
        let body = gzip_of_zeros(if request.contains("/bomb") { 1 << 30 } else { 1 << 20 });
        let mut bytes =
            format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len()).into_bytes();
        bytes.extend(body);
        Say::All(bytes)
    })
    .await;
    let grant = allowed(&[&server]);
    let small = CLIENT.send(&grant, get(server.url("/"))).await.unwrap();
    assert_eq!((small.body.len(), small.headers), (1 << 20, Vec::new()));
    assert_eq!(CLIENT.send(&grant, get(server.url("/bomb"))).await, Err(Error::TooLarge(10 << 20)));
}

#[tokio::test]
async fn what_goes_wrong_is_said_without_addresses() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let rule = HostRule::parse(&closed.to_string()).unwrap();
    assert_eq!(
        CLIENT.send(&grant(&[rule]), get(format!("http://{closed}/"))).await,
        Err(Error::Connection("the connection was refused".to_owned()))
    );
    let rule = HostRule::parse("nowhere.invalid").unwrap();
    assert_eq!(
        CLIENT.send(&grant(&[rule]), get("http://nowhere.invalid/")).await,
        Err(Error::Connection("the name `nowhere.invalid` was not found".to_owned()))
    );
    let noise = Server::new(|_| Say::All(b"SSH-2.0-x\r\n\r\n".to_vec())).await;
    assert_eq!(
        CLIENT.send(&allowed(&[&noise]), get(noise.url("/"))).await,
        Err(Error::Connection("the answer is not HTTP or broke off".to_owned()))
    );
    let short = Server::new(|_| Say::All(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx".to_vec())).await;
    assert_eq!(
        CLIENT.send(&allowed(&[&short]), get(short.url("/"))).await,
        Err(Error::Connection("the body broke off or cannot be decompressed".to_owned()))
    );
    let noise = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = noise.local_addr().unwrap();
    tokio::spawn(async move { speak(noise.accept().await.unwrap().0, b"SSH-2.0-x\r\n\r\n").await });
    let rule = HostRule::parse(&address.to_string()).unwrap();
    let tls = CLIENT.send(&grant(&[rule]), get(format!("https://{address}/"))).await;
    assert!(matches!(&tls, Err(Error::Connection(why)) if why.starts_with("no trusted connection: ")), "{tls:?}");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_comes_before_any_connection() {
    let server = Server::new(|_| ok("")).await;
    let grant = allowed(&[&server]);
    let with = |name: &str| Request { headers: vec![(name.to_owned(), "x".to_owned())], ..get(server.url("/")) };
    assert_eq!(denial(CLIENT.send(&grant, with("Host")).await).hint, "");
    assert!(matches!(CLIENT.send(&grant, with("a b")).await, Err(Error::InvalidRequest(_))));
    let user = server.url("/").replace("http://", "http://user:pw@");
    assert!(matches!(CLIENT.send(&grant, get(user)).await, Err(Error::InvalidUrl(_))));
    assert_eq!(
        denial(CLIENT.send(&grant, get("ftp://127.0.0.1/")).await).reason,
        "the scheme `ftp` is neither `http` nor `https`"
    );
    assert_eq!(server.seen().len(), 0);
    assert!(CLIENT.send(&grant, with("X-Fine")).await.is_ok());
}
