//! `http/protobuf/types.txt`: the messages that clients send instead of JSON.
//!
//! The `generated.proto` files give numbers and types; the Go types with the same numbers give the JSON names, which
//! are not always those of the messages (`Webhooks`, `handler`).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::go::{Declaration, Field, Type};
use super::kinds::Kind;
use super::package_alias;
use super::source::Release;
use crate::Failure;

/// Messages that are not objects in JSON; the decoder handles them.
const SPECIAL: &[&str] = &[
    "apiextensions.JSON",
    "apiextensions.JSONSchemaPropsOrArray",
    "apiextensions.JSONSchemaPropsOrBool",
    "apiextensions.JSONSchemaPropsOrStringArray",
    "intstr.IntOrString",
    "meta.FieldsV1",
    "meta.MicroTime",
    "meta.Time",
    "resource.Quantity",
    "runtime.RawExtension",
];

/// A field of a message: number, name, and the type as it is written.
type MessageField<'a> = (u32, &'a str, &'a str);

/// The table of one release.
pub(crate) fn table(kinds: &[Kind], release: &Release) -> Result<String, Failure> {
    let mut table =
        Table { release, aliases: BTreeMap::new(), files: BTreeMap::new(), messages: BTreeMap::new() };
    let kinds = || kinds.iter().filter(|kind| kind.protobuf && kind.is_in(release));
    let names = kinds().filter_map(|kind| Some((kind, kind.type_name.split_once('.')?)));
    table.aliases.extend(names.map(|(kind, (alias, _))| (kind.import_path.as_str(), alias)));
    for kind in kinds() {
        let name = kind.type_name.rsplit('.').next().unwrap_or_default();
        table.add(&kind.import_path, name)?;
    }
    let mut text = format!(
        "# Field numbers of the protobuf form of the served kinds: facts only, no prose.\n\
         # Made by `cargo xtask gen --kubernetes DIR` from the generated.proto files of Kubernetes v1.{}; do not edit.\n\
         #\n\
         # @package.Message, [] if it is its list, then: number name type; ! is inlined in JSON; [] list, {{}} map by string;\n\
         # s text, b bytes, t boolean, i integer, d floating point, or a message\n",
        release.minor
    );
    for (name, lines) in &table.messages {
        let _ = write!(text, "@{name}{lines}");
    }
    Ok(text)
}

struct Table<'a> {
    release: &'a Release,
    /// What `kinds.txt` calls a package: two versions of one group have a name each.
    aliases: BTreeMap<&'a str, &'a str>,
    /// The text of each package's `generated.proto`.
    files: BTreeMap<String, String>,
    messages: BTreeMap<String, String>,
}

impl Table<'_> {
    /// Adds a message and those it refers to; its name in the table.
    fn add(&mut self, import_path: &str, name: &str) -> Result<String, Failure> {
        let alias = self.aliases.get(import_path).copied().unwrap_or_else(|| package_alias(import_path));
        let full = format!("{alias}.{name}");
        if SPECIAL.contains(&full.as_str()) || self.messages.contains_key(&full) {
            return Ok(full);
        }
        self.messages.insert(full.clone(), String::new());
        if !self.files.contains_key(import_path) {
            let text = self.release.text(&format!("staging/src/{import_path}/generated.proto"))?;
            self.files.insert(import_path.to_owned(), text);
        }
        let text = self.files.get(import_path).cloned().unwrap_or_default();
        let fields = message(&text, name)
            .ok_or_else(|| Failure(format!("{import_path}/generated.proto has no message {name}")))?;
        let go = self.release.fields(import_path, name, |_| false).unwrap_or_default();
        // A list with a name of its own, whose message wraps it.
        let list =
            matches!(self.release.declaration(import_path, name), Some(Declaration::Named(Type::List(_))));
        let mut lines = if list { " []\n" } else { "\n" }.to_owned();
        for (number, proto_name, ty) in fields {
            let field = go.iter().find(|field| field.protobuf_number() == Some(number));
            let json = field.and_then(|field| field.json_name()).unwrap_or(proto_name);
            let inline = if field.is_some_and(|field| Field::inline(field)) { "!" } else { "" };
            let ty = self.type_text(ty, import_path)?;
            let _ = writeln!(lines, "{number} {inline}{json} {ty}");
        }
        self.messages.insert(full.clone(), lines);
        Ok(full)
    }

    fn type_text(&mut self, ty: &str, import_path: &str) -> Result<String, Failure> {
        if let Some(item) = ty.strip_prefix("repeated ") {
            return Ok(format!("[]{}", self.type_text(item, import_path)?));
        }
        if let Some(entry) = ty.strip_prefix("map<").and_then(|rest| rest.strip_suffix('>')) {
            let item = entry.split_once(',').map_or(entry, |(_, item)| item.trim());
            return Ok(format!("{{}}{}", self.type_text(item, import_path)?));
        }
        Ok(match ty {
            "string" => "s".to_owned(),
            "bytes" => "b".to_owned(),
            "bool" => "t".to_owned(),
            "int32" | "int64" | "uint32" | "uint64" => "i".to_owned(),
            "double" | "float" => "d".to_owned(),
            _ => match ty.trim_start_matches('.').rsplit_once('.') {
                // `.k8s.io.api.core.v1.PodSpec`: every dot but that of the domain is a slash of the import path.
                Some((package, name)) => {
                    let path = package.replacen("k8s.io.", "k8s.io/", 1);
                    let path = path.split_once('/').map_or(path.clone(), |(domain, rest)| {
                        format!("{domain}/{}", rest.replace('.', "/"))
                    });
                    self.add(&path.replace('_', "-"), name)?
                }
                None => self.add(import_path, ty)?,
            },
        })
    }
}

/// The fields of a message in the order of their numbers.
fn message<'a>(text: &'a str, name: &str) -> Option<Vec<MessageField<'a>>> {
    let (_, rest) = text.split_once(&format!("\nmessage {name} {{\n"))?;
    // A message without fields ends at once; the first line break before a bracket is that of a later one.
    let body = if rest.starts_with('}') { "" } else { rest.split_once("\n}")?.0 };
    let mut fields: Vec<MessageField<'a>> = body.lines().filter_map(field).collect();
    fields.sort_unstable();
    Some(fields)
}

/// `optional string name = 1;`, `map<string, bytes> data = 2;`
fn field(line: &str) -> Option<MessageField<'_>> {
    let line = line.trim();
    if line.starts_with("//") {
        return None;
    }
    let (declared, number) = line.strip_suffix(';')?.split_once(" = ")?;
    let (ty, name) = declared.rsplit_once(' ')?;
    Some((number.parse().ok()?, name, ty.strip_prefix("optional ").unwrap_or(ty)))
}
