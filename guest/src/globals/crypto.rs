//! `crypto.hmac_sha256`: the authentication code of a message, in hexadecimal.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::Value;

use super::argument;

use crate::observe::pure;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("crypto", |space| pure(space, "crypto", functions));
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn hmac_sha256<'v>(key: Value<'v>, msg: Value<'v>) -> anyhow::Result<String> {
        let key = argument::text("crypto.hmac_sha256", "key", key)?;
        let message = argument::text("crypto.hmac_sha256", "msg", msg)?;
        let code = Hmac::<Sha256>::new_from_slice(key.as_bytes())
            .map_err(|_| anyhow::anyhow!("crypto.hmac_sha256: bad key"))?;
        Ok(argument::hex(&code.chain_update(message).finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{check_all, fail_all};

    #[test]
    fn published_vectors() {
        // RFC 4231's test case 2; then an empty key and one that is longer than a block of the hash.
        check_all([
            (
                "crypto.hmac_sha256('Jefe', 'what do ya want for nothing?')",
                json!("5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            ),
            (
                "crypto.hmac_sha256(key = '', msg = '')",
                json!("b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"),
            ),
            (
                "crypto.hmac_sha256('k' * 65, 'm')",
                json!("c2d7d4c2256ddb097409ec0c67e1d58fa1a007fc6932cac0d892a525d08af7cc"),
            ),
        ]);
    }

    #[test]
    fn errors() {
        fail_all([
            ("crypto.hmac_sha256(1, 'm')", "crypto.hmac_sha256: key must be a string, got int"),
            ("crypto.hmac_sha256('k', [])", "crypto.hmac_sha256: msg must be a string, got list"),
        ]);
    }
}
