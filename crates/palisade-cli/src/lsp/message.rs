//! JSON-RPC: what a message is, and what to reply to it.
//!
//! Implements: JSON-RPC 2.0 as the Language Server Protocol uses it: no batches, ids are numbers or strings.

use serde::Serialize;
use serde_json::{Value, json};

/// Why a request failed, by the number of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    /// It is no JSON.
    Parse,
    /// It is no request.
    InvalidRequest,
    /// There is no such method.
    MethodNotFound,
    /// Its parameters have another form.
    InvalidParams,
    /// The first request must be `initialize`.
    NotInitialized,
    /// The server could not do it, though the request was right.
    RequestFailed,
    /// The text has changed since.
    ContentModified,
    /// The client cancelled it.
    Cancelled,
}

impl ErrorCode {
    const fn number(self) -> i32 {
        match self {
            Self::Parse => -32700,
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::NotInitialized => -32002,
            Self::RequestFailed => -32803,
            Self::ContentModified => -32801,
            Self::Cancelled => -32800,
        }
    }
}

/// A message of the client.
#[derive(Debug, PartialEq)]
pub enum Message {
    /// It waits for a response.
    Request {
        /// A number or a string.
        id: Value,
        /// What to do.
        method: String,
        /// With what.
        params: Value,
    },
    /// It does not.
    Notification {
        /// What happened.
        method: String,
        /// To what.
        params: Value,
    },
    /// A response to a request of the server, of which none needs one.
    Ignored,
    /// It could not be read, and may have been a change of a text.
    Unreadable {
        /// The request, if that much could be read.
        id: Value,
        /// What is wrong.
        code: ErrorCode,
        /// The same in words.
        reason: String,
    },
}

impl Message {
    /// Reads a message.
    #[must_use]
    pub fn parse(body: &[u8]) -> Self {
        let value: Value = match serde_json::from_slice(body) {
            Ok(value) => value,
            Err(error) => {
                let reason = format!("the message is not JSON: {error}");
                return Self::Unreadable { id: Value::Null, code: ErrorCode::Parse, reason };
            }
        };
        let Value::Object(mut fields) = value else { return Self::invalid("the message is not an object") };
        let params = fields.remove("params").unwrap_or(Value::Null);
        let id = fields.remove("id");
        let method = match fields.remove("method") {
            Some(Value::String(method)) => method,
            None if id.is_some() && (fields.contains_key("result") || fields.contains_key("error")) => {
                return Self::Ignored;
            }
            _ => return Self::invalid("the message has no method"),
        };
        match id {
            None => Self::Notification { method, params },
            Some(id @ (Value::Number(_) | Value::String(_))) => Self::Request { id, method, params },
            Some(_) => Self::invalid("the id of a request is a number or a string"),
        }
    }

    fn invalid(reason: &str) -> Self {
        Self::Unreadable { id: Value::Null, code: ErrorCode::InvalidRequest, reason: reason.to_owned() }
    }

    /// The request that this message cancels.
    #[must_use]
    pub fn cancelled(&self) -> Option<Value> {
        match self {
            Self::Notification { method, params } if method == "$/cancelRequest" => {
                Some(params.get("id").cloned().unwrap_or(Value::Null))
            }
            _ => None,
        }
    }
}

/// The response to a request that succeeded.
#[must_use]
pub fn response(id: &Value, result: &impl Serialize) -> Value {
    match serde_json::to_value(result) {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => failure(id, ErrorCode::RequestFailed, &error.to_string()),
    }
}

/// The response to a request that failed.
#[must_use]
pub fn failure(id: &Value, code: ErrorCode, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code.number(), "message": message}})
}

/// A notification of the server.
#[must_use]
pub fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_a_request_a_notification_or_unreadable() {
        for (text, expected) in [
            (r#"{"id":1,"method":"m","params":[1]}"#, "request"),
            (r#"{"id":"a","method":"m"}"#, "request"),
            (r#"{"method":"m"}"#, "notification"),
            (r#"{"id":1,"result":null}"#, "ignored"),
            (r#"{"id":1,"error":{"code":1,"message":""}}"#, "ignored"),
            ("", "-32700"),
            ("{", "-32700"),
            ("\u{feff}{}", "-32700"),
            ("[]", "-32600"),
            ("{}", "-32600"),
            (r#"{"id":null,"method":"m"}"#, "-32600"),
            (r#"{"id":{},"method":"m"}"#, "-32600"),
            (r#"{"id":1,"method":2}"#, "-32600"),
            (&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)), "-32700"),
        ] {
            let found = match Message::parse(text.as_bytes()) {
                Message::Request { .. } => "request".to_owned(),
                Message::Notification { .. } => "notification".to_owned(),
                Message::Ignored => "ignored".to_owned(),
                Message::Unreadable { code, .. } => code.number().to_string(),
            };
            assert_eq!(found, expected, "{}", text.chars().take(40).collect::<String>());
        }
    }
}
