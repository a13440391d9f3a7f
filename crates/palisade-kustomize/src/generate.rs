//! ConfigMaps and Secrets of generators, and the hashes of their contents.
//!
//! Implements: `configMapGenerator` and `secretGenerator`, and the hash of sigs.k8s.io/kustomize/api/hasher.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use palisade_base::sha256;
use serde_json::{Map, Value as Json, json};

use crate::{
    error::ProblemKind,
    object::Object,
    tree::{Node, Origin, Value},
};

/// Reads the file that a generator names.
pub(crate) type ReadFile<'r> = dyn FnMut(&str, Option<Origin>) -> Result<Vec<u8>, ProblemKind> + 'r;

/// What a generator does with an object that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behavior {
    Create,
    Merge,
    Replace,
}

const FIELDS: [&str; 10] =
    ["name", "namespace", "behavior", "files", "literals", "env", "envs", "type", "options", "kvSources"];

/// Runs a generator.
pub(crate) fn generate(
    kind: &'static str,
    entry: &Node,
    common: Option<&Node>,
    read: &mut ReadFile<'_>,
) -> Result<(Object, Behavior), ProblemKind> {
    if let Some((key, _)) = entry.entries().iter().find(|(key, _)| !FIELDS.contains(&key.as_str())) {
        return Err(ProblemKind::UnknownField(key.clone()));
    }
    let name = entry.text(&["name"]);
    if name.is_empty() {
        return Err(ProblemKind::Generator("it has no name".to_owned()));
    }
    let origin = entry.origin;
    let (mut data, mut binary) = (Map::new(), Map::new());
    let is_secret = kind == "Secret";
    let mut put = |key: &str, bytes: Vec<u8>| match String::from_utf8(bytes) {
        Ok(text) if !is_secret => drop(data.insert(key.to_owned(), text.into())),
        Ok(text) => drop(data.insert(key.to_owned(), STANDARD.encode(text).into())),
        Err(error) => {
            let encoded = STANDARD.encode(error.as_bytes());
            let map = if is_secret { &mut data } else { &mut binary };
            map.insert(key.to_owned(), encoded.into());
        }
    };
    let texts = |field: &str| -> Vec<String> {
        let items = entry.get(field).map(Node::items).unwrap_or_default();
        items.iter().map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
    };
    for env in texts("envs").into_iter().chain([entry.text(&["env"]).to_owned()]) {
        if env.is_empty() {
            continue;
        }
        let bytes = read(&env, origin)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        for line in text.lines().map(|line| line.trim_start_matches([' ', '\t', '\u{feff}'])) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            // Without a value it is one of the environment, which nothing here reads.
            let (key, value) = line.split_once('=').unwrap_or((line, ""));
            put(key, value.as_bytes().to_vec());
        }
    }
    for literal in texts("literals") {
        let Some((key, value)) = literal.split_once('=') else {
            return Err(ProblemKind::Generator(format!("the literal {literal:?} has no `=`")));
        };
        let value = ['"', '\'']
            .iter()
            .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
            .unwrap_or(value);
        put(key, value.as_bytes().to_vec());
    }
    for file in texts("files") {
        let base = file.rsplit('/').next().unwrap_or_default();
        let (key, path) = file.split_once('=').unwrap_or((base, &file));
        put(key, read(path, origin)?);
    }
    let mut object = json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    if let Json::Object(object) = &mut object {
        if !data.is_empty() {
            object.insert("data".to_owned(), Json::Object(data));
        }
        if !binary.is_empty() {
            object.insert("binaryData".to_owned(), Json::Object(binary));
        }
        if is_secret {
            let of = entry.get("type").and_then(Node::as_str).unwrap_or("Opaque");
            object.insert("type".to_owned(), of.into());
        }
    }
    let mut object = Object::new(Node::made(object, origin));
    let namespace = entry.text(&["namespace"]);
    if !namespace.is_empty() {
        object.set_text(&["metadata", "namespace"], namespace, origin);
    }
    object.hashed = true;
    for options in common.into_iter().chain(entry.get("options")) {
        for field in ["labels", "annotations"] {
            let Some(pairs) = options.get(field) else { continue };
            if let Some(target) = object.node.descend(&["metadata", field], origin) {
                for (key, value) in pairs.entries() {
                    target.set(key, value.clone());
                }
            }
        }
        if options.get("disableNameSuffixHash").is_some_and(Node::is_true) {
            object.hashed = false;
        }
        if options.get("immutable").is_some_and(Node::is_true) {
            object.node.set("immutable", Node::made(true.into(), origin));
        }
    }
    let behavior = match entry.text(&["behavior"]) {
        "merge" => Behavior::Merge,
        "replace" => Behavior::Replace,
        // kustomize takes any other word for none.
        _ => Behavior::Create,
    };
    Ok((object, behavior))
}

/// Puts the generated data over that of an object that is there.
pub(crate) fn absorb(old: &mut Object, new: &Object, behavior: Behavior) {
    for field in ["data", "binaryData"] {
        let Some(data) = new.node.get(field) else {
            if behavior == Behavior::Replace {
                old.node.remove(field);
            }
            continue;
        };
        if behavior == Behavior::Replace {
            old.node.set(field, data.clone());
        } else if let Some(target) = old.node.child(field, data.origin) {
            for (key, value) in data.entries() {
                target.set(key, value.clone());
            }
        }
    }
    for field in ["labels", "annotations"] {
        let Some(pairs) = new.node.at(&["metadata", field]).cloned() else { continue };
        if let Some(target) = old.node.descend(&["metadata", field], pairs.origin) {
            for (key, value) in pairs.entries() {
                target.set(key, value.clone());
            }
        }
    }
    old.hashed |= new.hashed;
}

/// The end of the name of a generated object.
pub(crate) fn hash(node: &Node) -> String {
    let of = |field: &str| node.get(field).map_or_else(|| Json::from(""), Node::to_json);
    let mut content = Map::new();
    content.insert("kind".to_owned(), node.text(&["kind"]).into());
    // kustomize looks for a field that is called `metadata/name`, and finds none.
    content.insert("name".to_owned(), "".into());
    content.insert("data".to_owned(), of("data"));
    if node.text(&["kind"]) == "Secret" {
        content.insert("type".to_owned(), node.text(&["type"]).into());
        if node.get("stringData").is_some() {
            content.insert("stringData".to_owned(), of("stringData"));
        }
    } else if node.get("binaryData").is_some_and(|data| matches!(data.value, Value::Map(_))) {
        content.insert("binaryData".to_owned(), of("binaryData"));
    }
    let text = sorted(&Json::Object(content)).to_string();
    // As Go writes JSON.
    let text = text
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029");
    let digits = sha256::hex(text.as_bytes());
    digits
        .chars()
        .take(10)
        .map(|digit| match digit {
            '0' => 'g',
            '1' => 'h',
            '3' => 'k',
            'a' => 'm',
            'e' => 't',
            other => other,
        })
        .collect()
}

/// With the keys in order, whatever the map is made of.
fn sorted(value: &Json) -> Json {
    match value {
        Json::Object(map) => {
            let mut keys: Vec<_> = map.iter().collect();
            keys.sort_by_key(|(key, _)| key.as_str());
            Json::Object(keys.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        other => other.clone(),
    }
}
