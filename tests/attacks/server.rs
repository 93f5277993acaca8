//! A server whose answer is asked for by the path, most of them bad. It speaks TLS with whoever begins so.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The first byte of a handshake of TLS (RFC 8446, section 5.1).
const HANDSHAKE: u8 = 22;

/// A server on the loopback interface, and how many have connected to it.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connected: Arc<AtomicUsize>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, connected) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let (count, tls) = (connected.clone(), acceptor());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(accepted(stream, tls.clone()));
            }
        });
        Self { address, connected }
    }

    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Ordering::SeqCst)
    }
}

/// The server's certificate, for the loopback interface and two names, or the key to it: a key for tests alone.
pub(crate) fn identity(file: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/tls")).join(file)
}

fn acceptor() -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(identity("certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(identity("key.pem")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

async fn accepted(stream: TcpStream, tls: TlsAcceptor) {
    let mut first = [0];
    if stream.peek(&mut first).await.is_ok_and(|count| count == 1) && first == [HANDSHAKE] {
        if let Ok(stream) = tls.accept(stream).await {
            serve(stream).await;
        }
    } else {
        serve(stream).await;
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(count) => head.extend_from_slice(&buffer[..count]),
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    // Anyone who has enough hangs up.
    let _ = answer(&mut stream, &head, &path).await;
}

fn ok(headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}

async fn answer(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), head: &str, path: &str) -> std::io::Result<()> {
    let parts: Vec<&str> = path.splitn(4, '/').skip(1).collect();
    match parts.as_slice() {
        // What the server was asked, word for word.
        ["echo"] => stream.write_all(&ok("", head)).await?,
        // A redirect with this status to the rest of the path.
        ["to", status, location] => {
            let location = location.replace("%0d", "\r").replace("%09", "\t");
            let text = format!(
                "HTTP/1.1 {status} Go\r\nlocation: {location}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(text.as_bytes()).await?;
        }
        // A redirect to this server, with what it was given in a header as the path.
        ["leak", server] => {
            let token = head.lines().find_map(|line| line.strip_prefix("x-token: ")).unwrap_or_default();
            let text = format!(
                "HTTP/1.1 302 Go\r\nlocation: http://{server}/{token}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(text.as_bytes()).await?;
        }
        // A redirect to itself with a number that grows.
        ["bounce", count] => {
            let next = count.parse::<u32>().unwrap_or(0) + 1;
            let text = format!(
                "HTTP/1.1 302 Go\r\nlocation: /bounce/{next}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(text.as_bytes()).await?;
        }
        ["drip"] => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n").await?;
            loop {
                stream.write_all(b"x").await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        ["drip-head"] => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await?;
            loop {
                stream.write_all(b"x").await?;
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        // Until the other side has had enough: a socket that is held for longer would look like the host's.
        ["silence"] => drop(stream.read(&mut [0]).await?),
        ["endless-head"] => {
            stream.write_all(b"HTTP/1.1 200 OK\r\n").await?;
            for n in 0_u64.. {
                stream.write_all(format!("x-{n}: {}\r\n", "y".repeat(1000)).as_bytes()).await?;
            }
        }
        ["endless-line"] => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nx: ").await?;
            loop {
                stream.write_all(&[b'y'; 4096]).await?;
            }
        }
        ["endless-early"] => loop {
            stream.write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n").await?;
        },
        ["endless-body"] => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await?;
            loop {
                stream.write_all(&[b'z'; 16384]).await?;
            }
        }
        ["endless-chunks"] => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
            loop {
                stream.write_all(b"1;ext=aaaaaaaaaaaaaaaa\r\nz\r\n").await?;
            }
        }
        ["bomb", megabytes] => {
            let body = gzip_of_zeros(megabytes.parse::<usize>().unwrap_or(1) << 20);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&body).await?;
        }
        // What decompresses to nothing, so often, or without end; and then four letters.
        ["nothing", kind, count] => {
            let Nothing { coding, start, each, end } = Nothing::of(kind);
            let head = format!("HTTP/1.1 200 OK\r\ncontent-encoding: {coding}\r\nconnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&start).await?;
            match count.parse() {
                Ok(count) => stream.write_all(&each.repeat(count)).await?,
                Err(_) => {
                    let many = each.repeat(16384 / each.len());
                    loop {
                        stream.write_all(&many).await?;
                    }
                }
            }
            stream.write_all(&end).await?;
        }
        // So many headers, each with a value of so many bytes, beside the two that any answer here has.
        ["headers", count, bytes] => {
            let value = "v".repeat(bytes.parse().unwrap_or(0));
            let headers: String = (0..count.parse().unwrap_or(0_u32)).map(|n| format!("x-{n}: {value}\r\n")).collect();
            stream.write_all(&ok(&headers, "pong")).await?;
        }
        ["body", bytes] => stream.write_all(&ok("", &"b".repeat(bytes.parse().unwrap_or(0)))).await?,
        ["short"] => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\nconnection: close\r\n\r\nshort").await?
        }
        ["no-http"] => stream.write_all(b"SSH-2.0-OpenSSH_9.9\r\n").await?,
        ["two-lengths"] => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 9\r\n\r\nokokokoko").await?;
        }
        ["bad-text"] => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\na\xffb").await?;
        }
        ["bad-text", bytes] => {
            let bytes: usize = bytes.parse().unwrap_or(0);
            stream.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\n\r\n").as_bytes()).await?;
            stream.write_all(&vec![0xff; bytes]).await?;
        }
        ["cookie"] => stream.write_all(&ok("set-cookie: session=stolen; path=/\r\n", "set")).await?,
        _ => stream.write_all(&ok("", "pong")).await?,
    }
    stream.shutdown().await
}

/// A gzip file of this many zero bytes: one block of fixed codes (RFC 1951). Its check sum is not right, which nobody
/// comes to see.
fn gzip_of_zeros(length: usize) -> Vec<u8> {
    let mut bits = vec![true, true, false];
    let mut code = |value: u32, count: u32| bits.extend((0..count).rev().map(|bit| value >> bit & 1 == 1));
    code(0x30, 8);
    for _ in 0..(length - 1) / 258 {
        // As far back as one byte, 258 times.
        code(0b1100_0101, 8);
        code(0, 5);
    }
    code(0, 7);
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    out.extend(bits.chunks(8).map(|bits| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit))));
    out.extend([0; 8]);
    out
}

/// What decompresses to nothing, however often it is there.
struct Nothing {
    coding: &'static str,
    start: Vec<u8>,
    each: Vec<u8>,
    /// `pong`, and the end.
    end: Vec<u8>,
}

impl Nothing {
    fn of(kind: &str) -> Self {
        /// A gzip file, so far, without its name; and one of `pong` after that (RFC 1951, 1952): stored.
        const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        const PONG: [u8; 17] = [1, 4, 0, 0xfb, 0xff, b'p', b'o', b'n', b'g', 0x4f, 0x41, 0x58, 0x21, 4, 0, 0, 0];
        let gzip = |start: &[u8], each: &[u8], end: &[u8]| Self {
            coding: "gzip",
            start: start.to_vec(),
            each: each.to_vec(),
            end: end.to_vec(),
        };
        match kind {
            // Stored, of no bytes, and not the last one.
            "blocks" => gzip(&HEAD, &[0, 0, 0, 0xff, 0xff], &PONG),
            // Whole files of no bytes.
            "files" => gzip(&[], &[&HEAD[..], &[3, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat(), &[&HEAD[..], &PONG].concat()),
            // The file's name.
            "name" => {
                let named = [0x1f, 0x8b, 8, 8, 0, 0, 0, 0, 0, 255];
                gzip(&named, b"n", &[&[0][..], &PONG].concat())
            }
            // Brotli's blocks of metadata (RFC 7932), each of no bytes.
            "metadata" => Self {
                coding: "br",
                start: vec![0x0c],
                each: vec![0x06],
                end: vec![0x18, 0, 8, b'p', b'o', b'n', b'g', 3],
            },
            other => panic!("{other:?} is no way to say nothing"),
        }
    }
}
