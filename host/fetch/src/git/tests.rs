//! A server that lets a pack drip, on a clock that the tests move: a byte a second of that clock, which moves when nobody has
//! anything else to do. git itself, its network and its wall are real.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use harness_capability::env::Variables;
use harness_capability::http::Client;
use harness_plugin::source::Source;
use harness_testing::skip::{Need, skipped};
use harness_wall::Offers;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;

const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tls/certificate.pem");
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/tls/key.pem");

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]).args(arguments).current_dir(folder);
    let output = command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A repository with one file, at the tag `v1`. The file is one that no packing makes smaller than some hundred bytes.
fn repository() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    git(folder.path(), &["init", "--quiet"]);
    let noise: String = (0_u64..64).map(|n| format!("{:x}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    tree::write(&folder.path().join("acme"), [("plugin.md", noise.as_bytes())].into_iter()).unwrap();
    for arguments in [&["add", "--all"][..], &["commit", "--quiet", "--message", "v1"], &["tag", "v1"]] {
        git(folder.path(), arguments);
    }
    folder
}

/// A request: its first line, its headers and its body.
async fn request(stream: &mut (impl AsyncRead + Unpin)) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return Default::default(),
        }
    }
    let head = String::from_utf8(head).unwrap();
    let mut body = vec![0; header(&head, "content-length").parse().unwrap_or(0)];
    stream.read_exact(&mut body).await.unwrap();
    (head, body)
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    headers.find(|(other, _)| other.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
}

/// What `git http-backend` answers to a request.
async fn answer(repository: &Path, head: &str, body: &[u8]) -> (String, Vec<u8>) {
    let line: Vec<&str> = head.split_whitespace().take(2).collect();
    let [method, target] = line[..] else { panic!("{head}") };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut command = tokio::process::Command::new("git");
    command.arg("http-backend").env("GIT_PROJECT_ROOT", repository).env("GIT_HTTP_EXPORT_ALL", "1");
    command.env("PATH_INFO", path).env("QUERY_STRING", query).env("REQUEST_METHOD", method);
    command.env("CONTENT_TYPE", header(head, "content-type")).env("CONTENT_LENGTH", body.len().to_string());
    command.env("HTTP_CONTENT_ENCODING", header(head, "content-encoding"));
    command.env("GIT_PROTOCOL", header(head, "git-protocol"));
    // The folder is of this user.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(body).await.unwrap();
    let said = child.wait_with_output().await.unwrap().stdout;
    let end = said.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let fields = String::from_utf8(said[..end].to_vec()).unwrap();
    let status = header(&fields, "status");
    let status = if status.is_empty() { "200 OK" } else { status };
    let content = said[end + 4..].to_vec();
    let length = content.len();
    (format!("HTTP/1.1 {status}\r\n{fields}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"), content)
}

/// Serves a repository over https. Of the answer that has the pack, so many bytes drip, and then the clock is that of the
/// machine again. Returns the source, and how many bytes have dripped.
async fn dripping(repository: &Path, bytes: usize) -> (String, Arc<AtomicUsize>) {
    let certificate = CertificateDer::from_pem_file(CERTIFICATE).unwrap();
    let key = PrivateKeyDer::from_pem_file(KEY).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let (counted, repository) = (sent.clone(), repository.to_owned());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let (head, body) = request(&mut stream).await;
            let (head, content) = answer(&repository, &head, &body).await;
            if stream.write_all(head.as_bytes()).await.is_err() {
                continue;
            }
            let has_pack = String::from_utf8_lossy(&body).contains("command=fetch");
            let dripping = if has_pack { content.len().min(bytes) } else { 0 };
            if dripping > 0 {
                tokio::time::pause();
                for byte in &content[..dripping] {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    if stream.write_all(&[*byte]).await.is_err() || stream.flush().await.is_err() {
                        break;
                    }
                    counted.fetch_add(1, Ordering::Relaxed);
                }
                tokio::time::resume();
            }
            let _ = stream.write_all(&content[dripping..]).await;
            let _ = stream.shutdown().await;
        }
    });
    (format!("git+https://{address}/.git@v1#acme"), sent)
}

/// What a fetch from there says, and how many bytes have dripped.
async fn fetched_from(bytes: usize) -> (String, usize) {
    let repository = repository();
    let (source, sent) = dripping(repository.path(), bytes).await;
    let Ok(Source::Git(source)) = Source::parse(&source) else { panic!("{source}") };
    let cache = tempfile::tempdir().unwrap();
    let place = FetchContext {
        machine: &[],
        cache: cache.path(),
        program: Path::new("/nowhere/harness"),
        variables: &Variables::from_iter([("SSL_CERT_FILE".to_owned(), CERTIFICATE.to_owned())]),
        http: &Client::default(),
        credentials: None,
        is_private: true,
    };
    let failure = fetch(&source, None, place).await.unwrap_err();
    (failure.why, sent.load(Ordering::Relaxed))
}

/// Whether this machine gives commands a network of their own.
fn none_here() -> bool {
    let own = Offers::get().wall().is_ok_and(|wall| wall.network && wall.namespaces.is_some());
    skipped(Need::Namespaces, own)
}

/// A pack that comes a byte a second ends with the time of the fetch, however long it would drip.
#[tokio::test]
async fn a_pack_that_drips_ends_with_the_time_of_the_fetch() {
    if none_here() {
        return;
    }
    let (why, sent) = fetched_from(usize::MAX).await;
    assert_eq!(why, "it took more than 120 seconds");
    assert!((100..=121).contains(&sent), "{sent}");
}

/// The control: one that is over before that is read to its end, and is to be unpacked.
#[tokio::test]
async fn a_pack_that_drips_for_a_minute_is_fetched() {
    if none_here() {
        return;
    }
    let (why, sent) = fetched_from(60).await;
    assert_eq!(why, "`/nowhere/harness` cannot be run: it cannot be confined: No such file or directory (os error 2)");
    assert_eq!(sent, 60);
}
