//! What an answer may hold, in its headers and its body.

use super::server::{Say, Server, gzip_of_zeros};
use super::{CLIENT, allowed, get};
use crate::http::{Error, Request, Response};

/// A gzip file of nothing, and one of `hello`, which is stored.
const NOTHING: &[u8] = &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0];
const HELLO: &[u8] = &[
    0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1, 5, 0, 0xfa, 0xff, b'h', b'e', b'l', b'l', b'o', 0x86, 0xa6, 0x10, 0x36, 5,
    0, 0, 0,
];
/// `hello` as brotli has it.
const HELLO_BR: &[u8] = b"\x0b\x02\x80hello\x03";

fn compressed(coding: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nx-a: 1\r\ncontent-length: {}\r\ncontent-encoding: {coding}\r\nx-b: 2\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

async fn answered(say: impl Fn() -> Say + Send + Sync + 'static) -> Result<Response, Error> {
    let server = Server::new(move |_| say()).await;
    CLIENT.send(&allowed(&[&server]), get(server.url("/"))).await
}

async fn body(bytes: Vec<u8>) -> Result<String, Error> {
    answered(move || Say::All(bytes.clone())).await.map(|answer| answer.body)
}

fn names(answer: &Response) -> String {
    answer.headers.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(" ")
}

#[tokio::test]
async fn both_codings_are_decompressed_and_others_are_given_as_they_come() {
    for (coding, bytes, want) in [
        ("gzip", HELLO.to_vec(), "hello"),
        ("GZip", HELLO.to_vec(), "hello"),
        ("br", HELLO_BR.to_vec(), "hello"),
        // Several files are one.
        ("gzip", [HELLO, NOTHING, HELLO].concat(), "hellohello"),
        // As what answers HEAD says it.
        ("gzip", Vec::new(), ""),
        ("br", Vec::new(), ""),
    ] {
        let answer = answered(move || Say::All(compressed(coding, &bytes))).await.unwrap();
        assert_eq!((answer.body.as_str(), names(&answer).as_str()), (want, "x-a x-b"), "{coding}");
    }
    for coding in ["deflate", "zstd", "identity", "gzip, br", "x"] {
        let answer = answered(move || Say::All(compressed(coding, b"hello"))).await.unwrap();
        let given = (answer.body.as_str(), names(&answer));
        assert_eq!(given, ("hello", "x-a content-length content-encoding x-b".to_owned()), "{coding}");
    }
    let head =
        Server::new(|_| Say::All(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 9\r\n\r\n".to_vec()))
            .await;
    let request = Request { method: "HEAD".to_owned(), ..get(head.url("/")) };
    assert_eq!(CLIENT.send(&allowed(&[&head]), request).await.map(|answer| answer.body), Ok(String::new()));
}

#[tokio::test]
async fn what_cannot_be_decompressed_is_no_answer() {
    let broken = Err(Error::Connection("the body broke off or cannot be decompressed".to_owned()));
    let mut wrong_sum = HELLO.to_vec();
    wrong_sum[20] ^= 1;
    for (coding, bytes) in [
        ("gzip", b"hello".to_vec()),
        ("gzip", HELLO[..20].to_vec()),
        ("gzip", wrong_sum),
        ("gzip", [HELLO, b"more"].concat()),
        ("gzip", [HELLO, &HELLO[..12]].concat()),
        ("br", b"\xff\xff\xff".to_vec()),
        ("br", HELLO_BR[..5].to_vec()),
        ("br", [HELLO_BR, b"more"].concat()),
    ] {
        assert_eq!(body(compressed(coding, &bytes)).await, broken, "{coding} {bytes:?}");
    }
}

#[tokio::test]
async fn what_decompresses_to_nothing_is_counted_as_it_comes() {
    const MOST: usize = 10 << 20;
    let empty = [0, 0, 0, 0xff, 0xff];
    // The last stored block is `hello`'s.
    let with = |blocks: usize| [&HELLO[..10], &empty.repeat(blocks), &HELLO[10..]].concat();
    let fits = (MOST - HELLO.len()) / empty.len();
    assert_eq!(body(compressed("gzip", &with(fits))).await.as_deref(), Ok("hello"));
    assert_eq!(body(compressed("gzip", &with(fits + 1))).await, Err(Error::TooLarge(10 << 20)));
    for (coding, start, each) in [("gzip", &HELLO[..10], &empty[..]), ("gzip", &[], NOTHING), ("br", &[0x0c], &[0x06])]
    {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\n\r\n");
        let (start, each) = ([head.as_bytes(), start].concat(), each.repeat(4000));
        let endless = answered(move || Say::Endless(start.clone(), each.clone())).await;
        assert_eq!(endless, Err(Error::TooLarge(10 << 20)), "{coding}");
    }
}

/// A body that takes long to decompress is read beside others, and not in their place.
#[tokio::test]
async fn others_have_their_turn_while_a_body_is_decompressed() {
    let server = Server::new(|_| {
        let head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n".to_vec();
        Say::Endless(head, NOTHING.repeat(20_000))
    })
    .await;
    let grant = allowed(&[&server]);
    let mut seen = 0_u32;
    tokio::select! {
        biased;
        answer = CLIENT.send(&grant, get(server.url("/"))) => assert_eq!(answer, Err(Error::TooLarge(10 << 20))),
        () = async { loop { tokio::task::yield_now().await; seen += 1; } } => {}
    }
    // Once for each piece of what came.
    assert!(seen >= 1280, "{seen}");
}

#[tokio::test]
async fn headers_of_an_answer_have_a_limit() {
    let with = |count: usize, bytes: usize, status: &str| {
        let headers: String = (0..count).map(|n| format!("x-{n:04}: {}\r\n", "v".repeat(bytes))).collect();
        format!("HTTP/1.1 {status}\r\n{headers}content-length: 0\r\n\r\n").into_bytes()
    };
    let over =
        Err(Error::Connection("the headers of the answer are over the limit: 100 headers, 65536 bytes".to_owned()));
    // `content-length: 0` is one header, of fifteen bytes, and each name has six.
    for (count, bytes, status, fits) in [
        (99, 1, "200 OK", true),
        (100, 1, "200 OK", false),
        (1, 65_536 - 21, "200 OK", true),
        (1, 65_536 - 20, "200 OK", false),
        (1, 400_000, "200 OK", false),
        (1, 500_000, "200 OK", false),
        (63, 1033, "200 OK", true),
        (64, 1033, "200 OK", false),
        (64, 1033, "404 No", false),
        // Where a redirect has them, it is not followed.
        (1, 70_000, "302 Go\r\nlocation: /", false),
        (99, 1, "302 Go\r\nlocation: /", false),
    ] {
        let head = with(count, bytes, status);
        let answer = body(head).await;
        assert_eq!(answer, if fits { Ok(String::new()) } else { over.clone() }, "{count} of {bytes}, {status}");
    }
}

/// The sum of an honest file is right, however it is cut.
#[tokio::test]
async fn a_large_compressed_body_is_whole() {
    let answer = body(compressed("gzip", &gzip_of_zeros(1 << 20))).await.unwrap();
    assert_eq!((answer.len(), answer.trim_matches('\0')), (1 << 20, ""));
}
