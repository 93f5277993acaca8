//! Messages of clients, and answers to those that are not handled: the same over every transport.

use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, RequestId, ServerJsonRpcMessage};
use serde_json::Value as Json;

/// Bytes of a message.
pub const MAX_MESSAGE: usize = 4 << 20;
/// Requests that are answered at one time: those of one client over standard input, those of all clients over HTTP.
pub const MAX_IN_FLIGHT: usize = 64;
/// Requests to listen at one time, over standard input of one client and over HTTP of all. They last, and would take the
/// places of others.
pub const MAX_LISTENING: usize = 16;
/// The code for a request that finds no room. It is in the range that JSON-RPC leaves to servers.
pub(crate) const BUSY: ErrorCode = ErrorCode(-32000);

/// A message that is answered without being handled.
#[derive(Debug)]
pub(crate) struct Rejected {
    pub(crate) id: Option<RequestId>,
    pub(crate) code: ErrorCode,
    pub(crate) why: String,
}

impl Rejected {
    pub(crate) fn invalid(id: Option<RequestId>, why: impl Into<String>) -> Self {
        Self { id, code: ErrorCode::INVALID_REQUEST, why: why.into() }
    }

    /// For a request beyond [`MAX_IN_FLIGHT`].
    pub(crate) fn busy(id: RequestId) -> Self {
        let why = format!("{MAX_IN_FLIGHT} requests are being answered: send this one again later");
        Self { id: Some(id), code: BUSY, why }
    }

    /// For a request to listen beyond [`MAX_LISTENING`].
    pub(crate) fn too_many(id: RequestId) -> Self {
        let why = format!("{MAX_LISTENING} requests listen already: end one of them first");
        Self { id: Some(id), code: BUSY, why }
    }

    pub(crate) fn into_answer(self) -> ServerJsonRpcMessage {
        ServerJsonRpcMessage::error(ErrorData::new(self.code, self.why, None), self.id)
    }
}

/// Reads a text as a message.
pub(crate) fn decode(text: &[u8]) -> Result<ClientJsonRpcMessage, Rejected> {
    if let Ok(message) = serde_json::from_slice(text) {
        return Ok(message);
    }
    match serde_json::from_slice::<Json>(text) {
        Err(error) => {
            Err(Rejected { id: None, code: ErrorCode::PARSE_ERROR, why: format!("the message is not JSON: {error}") })
        }
        Ok(Json::Array(_)) => Err(Rejected::invalid(None, "batches are not supported: send one message at a time")),
        Ok(mut value) => {
            let id = value.get_mut("id").map(Json::take).and_then(identifier);
            Err(Rejected::invalid(id, "this is not a JSON-RPC 2.0 message"))
        }
    }
}

pub(crate) fn identifier(id: Json) -> Option<RequestId> {
    serde_json::from_value(id).ok()
}
