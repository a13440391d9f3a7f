//! x
use serde_json::Value;
pub(crate) fn encode(_: &Value) -> Vec<u8> { Vec::new() }
