//! Secrets of webhooks, and signatures as Standard Webhooks has them: `v1,` and the HMAC-SHA256 of identifier, time and body.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What a secret begins with.
const PREFIX: &str = "whsec_";
/// Bytes of a secret.
const BYTES: usize = 32;

/// A secret that nobody knows.
pub(super) fn fresh() -> String {
    let mut bytes = [0; BYTES];
    harness_sys::fill_random(&mut bytes);
    format!("{PREFIX}{}", STANDARD.encode(bytes))
}

/// The value of `webhook-signature`: a signature for each secret. `at` is in seconds since 1970.
pub(super) fn header(secrets: &[String], id: &str, at: u64, body: &str) -> Option<String> {
    let signed = format!("{id}.{at}.{body}");
    let one = |secret: &String| {
        let key = STANDARD.decode(secret.strip_prefix(PREFIX)?).ok()?;
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), signed.as_bytes());
        Some(format!("v1,{}", STANDARD.encode(tag.as_ref())))
    };
    let signatures: Option<Vec<String>> = secrets.iter().map(one).collect();
    signatures.filter(|all| !all.is_empty()).map(|all| all.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".to_owned();
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", "{\"test\": 2432232314}");
        let signed = header(std::slice::from_ref(&secret), id, 1_614_265_330, body);
        assert_eq!(signed.as_deref(), Some("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="));
        let other = fresh();
        let both = header(&[secret, other.clone()], id, 1_614_265_330, body).unwrap();
        assert_eq!(both.split(' ').count(), 2);
        assert!(other.starts_with("whsec_") && other.len() == PREFIX.len() + 44 && other != fresh());
        assert_eq!(header(&["whsec_?".to_owned()], id, 0, body), None);
        assert_eq!(header(&[], id, 0, body), None);
    }
}
