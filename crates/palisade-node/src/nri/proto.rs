//! The messages of NRI and ttrpc that a plugin for seccomp policies needs.
//!
//! Implements: `pkg/api/api.proto` of github.com/containerd/nri and `request.proto` of github.com/containerd/ttrpc; fields that are not
//! listed are skipped when they are read. A seccomp policy of NRI is that of the OCI runtime specification, field by field.
#![allow(missing_docs, reason = "the names are NRI's own")]

use std::collections::BTreeMap;

use palisade_model::json;
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Request {
    #[prost(string, tag = "1")]
    pub service: String,
    #[prost(string, tag = "2")]
    pub method: String,
    #[prost(bytes = "vec", tag = "3")]
    pub payload: Vec<u8>,
    #[prost(int64, tag = "4")]
    pub timeout_nano: i64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Response {
    #[prost(message, optional, tag = "1")]
    pub status: Option<Status>,
    #[prost(bytes = "vec", tag = "2")]
    pub payload: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Status {
    #[prost(int32, tag = "1")]
    pub code: i32,
    #[prost(string, tag = "2")]
    pub message: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RegisterPluginRequest {
    #[prost(string, tag = "1")]
    pub plugin_name: String,
    #[prost(string, tag = "2")]
    pub plugin_idx: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConfigureRequest {
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    #[prost(string, tag = "3")]
    pub runtime_version: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConfigureResponse {
    #[prost(int32, tag = "2")]
    pub events: i32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SynchronizeRequest {
    #[prost(bool, tag = "3")]
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SynchronizeResponse {
    #[prost(bool, tag = "2")]
    pub more: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateContainerRequest {
    #[prost(message, optional, tag = "1")]
    pub pod: Option<PodSandbox>,
    #[prost(message, optional, tag = "2")]
    pub container: Option<Container>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandbox {
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(string, tag = "3")]
    pub uid: String,
    #[prost(string, tag = "4")]
    pub namespace: String,
    #[prost(btree_map = "string, string", tag = "5")]
    pub labels: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Container {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(message, optional, tag = "11")]
    pub linux: Option<LinuxContainer>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxContainer {
    #[prost(message, optional, tag = "8")]
    pub seccomp_policy: Option<LinuxSeccomp>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateContainerResponse {
    #[prost(message, optional, tag = "1")]
    pub adjust: Option<ContainerAdjustment>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerAdjustment {
    #[prost(message, optional, tag = "6")]
    pub linux: Option<LinuxContainerAdjustment>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxContainerAdjustment {
    #[prost(message, optional, tag = "6")]
    pub seccomp_policy: Option<LinuxSeccomp>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxSeccomp {
    #[prost(string, tag = "1")]
    pub default_action: String,
    #[prost(message, optional, tag = "2")]
    pub default_errno: Option<OptionalUInt32>,
    #[prost(string, repeated, tag = "3")]
    pub architectures: Vec<String>,
    #[prost(string, repeated, tag = "4")]
    pub flags: Vec<String>,
    #[prost(string, tag = "5")]
    pub listener_path: String,
    #[prost(string, tag = "6")]
    pub listener_metadata: String,
    #[prost(message, repeated, tag = "7")]
    pub syscalls: Vec<LinuxSyscall>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct OptionalUInt32 {
    #[prost(uint32, tag = "1")]
    pub value: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxSyscall {
    #[prost(string, repeated, tag = "1")]
    pub names: Vec<String>,
    #[prost(string, tag = "2")]
    pub action: String,
    #[prost(message, optional, tag = "3")]
    pub errno_ret: Option<OptionalUInt32>,
    #[prost(message, repeated, tag = "4")]
    pub args: Vec<LinuxSeccompArg>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxSeccompArg {
    #[prost(uint32, tag = "1")]
    pub index: u32,
    #[prost(uint64, tag = "2")]
    pub value: u64,
    #[prost(uint64, tag = "3")]
    pub value_two: u64,
    #[prost(string, tag = "4")]
    pub op: String,
}

impl LinuxSeccomp {
    /// The policy as a document of the OCI runtime specification.
    #[must_use]
    pub fn to_document(&self) -> Value {
        let mut document = Map::new();
        let mut put = |key: &str, value: Value, is_set: bool| {
            if is_set {
                document.insert(key.to_owned(), value);
            }
        };
        put("defaultAction", self.default_action.as_str().into(), !self.default_action.is_empty());
        let errno = self.default_errno.map(|errno| errno.value);
        put("defaultErrnoRet", errno.into(), errno.is_some());
        put("architectures", self.architectures.clone().into(), !self.architectures.is_empty());
        put("flags", self.flags.clone().into(), !self.flags.is_empty());
        put("listenerPath", self.listener_path.as_str().into(), !self.listener_path.is_empty());
        put("listenerMetadata", self.listener_metadata.as_str().into(), !self.listener_metadata.is_empty());
        let rules: Vec<Value> = self.syscalls.iter().map(LinuxSyscall::to_rule).collect();
        put("syscalls", rules.into(), !self.syscalls.is_empty());
        Value::Object(document)
    }

    /// The policy of a document.
    pub fn from_document(document: &Value) -> Result<Self, serde_json::Error> {
        let read: Document = json::from_value(document)?;
        let number = |value: u32| OptionalUInt32 { value };
        let rule = |rule: DocumentRule| LinuxSyscall {
            names: rule.names,
            action: rule.action,
            errno_ret: rule.errno_ret.map(number),
            args: rule.args.into_iter().map(DocumentArgument::into_message).collect(),
        };
        Ok(Self {
            default_action: read.default_action,
            default_errno: read.default_errno_ret.map(number),
            architectures: read.architectures,
            flags: read.flags,
            listener_path: read.listener_path,
            listener_metadata: read.listener_metadata,
            syscalls: read.syscalls.into_iter().map(rule).collect(),
        })
    }
}

impl LinuxSyscall {
    fn to_rule(&self) -> Value {
        let mut rule = Map::new();
        rule.insert("names".to_owned(), self.names.clone().into());
        rule.insert("action".to_owned(), self.action.as_str().into());
        if let Some(errno) = self.errno_ret {
            rule.insert("errnoRet".to_owned(), errno.value.into());
        }
        if !self.args.is_empty() {
            let arguments = self.args.iter().map(|argument| {
                serde_json::json!({"index": argument.index, "value": argument.value, "valueTwo": argument.value_two,
                    "op": argument.op})
            });
            rule.insert("args".to_owned(), arguments.collect());
        }
        Value::Object(rule)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    default_action: String,
    default_errno_ret: Option<u32>,
    #[serde(default)]
    architectures: Vec<String>,
    #[serde(default)]
    flags: Vec<String>,
    #[serde(default)]
    listener_path: String,
    #[serde(default)]
    listener_metadata: String,
    #[serde(default)]
    syscalls: Vec<DocumentRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DocumentRule {
    names: Vec<String>,
    action: String,
    errno_ret: Option<u32>,
    #[serde(default)]
    args: Vec<DocumentArgument>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DocumentArgument {
    index: u32,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: String,
}

impl DocumentArgument {
    fn into_message(self) -> LinuxSeccompArg {
        LinuxSeccompArg { index: self.index, value: self.value, value_two: self.value_two, op: self.op }
    }
}

#[cfg(test)]
mod tests {
    use palisade_model::profile::filter::Filter;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_policy_is_the_document_it_came_from() {
        let document = json!({"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 38, "architectures": ["SCMP_ARCH_X86_64"],
            "flags": ["SECCOMP_FILTER_FLAG_LOG"], "listenerPath": "/l", "listenerMetadata": "m", "syscalls": [
                {"names": ["socket", "bind"], "action": "SCMP_ACT_ALLOW",
                    "args": [{"index": 0, "value": 0xffff_ffff_ffff_ffff_u64, "valueTwo": 38, "op": "SCMP_CMP_MASKED_EQ"}]},
                {"names": ["mount"], "action": "SCMP_ACT_ERRNO", "errnoRet": 0}]});
        assert_eq!(LinuxSeccomp::from_document(&document).unwrap().to_document(), document);
        let smallest = json!({"defaultAction": "SCMP_ACT_ALLOW"});
        assert_eq!(LinuxSeccomp::from_document(&smallest).unwrap().to_document(), smallest);
        let nothing = LinuxSeccomp::default().to_document();
        assert!(Filter::read(&nothing).is_err(), "a runtime takes it for no profile");
        for unknown in [json!({"defaultAction": "A", "x": 1}), json!({"syscalls": []}), json!([])] {
            assert!(
                LinuxSeccomp::from_document(&unknown).is_err(),
                "{unknown}: nothing is dropped on the way"
            );
        }
    }
}
